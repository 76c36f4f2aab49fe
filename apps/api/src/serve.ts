import { mkdir } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { newId, redactError, SCOPES } from '@runplane/contracts';
import { checkStore, ensureTenant, isRebaseNeeded, listTenants, migrate, openDb, startEmbeddedPostgres, type Db } from '@runplane/database';
import { startRelay, type Relay } from '@runplane/outbox';
import {
  createFolderArchive,
  createFolderCollector,
  createKubernetesLauncher,
  createLauncherByProfile,
  createProcessLauncher,
  registerBackends,
  type Launcher,
} from '@runplane/runs';
import { createApiKey, issueRunToken } from './access/api-keys';
import { Credentials } from './access/credentials';
import { buildApp, type App } from './app';
import { ConfigError, postgresDir, usesKubernetes, type Config } from './config';
import type { LogOptions } from './http/logging';
import { startLoops, type OutboxAges } from './maintenance/loops';
import { openSinks } from './open-sinks';
import { isPassing, type Loop } from './maintenance/run-every';

export interface ServeOptions {
  readonly config: Config;
  /** What a person should see: the address, a first key. */
  readonly say?: ((line: string) => void) | undefined;
  readonly logger?: LogOptions | false | undefined;
  /** Instead of those of the backend profiles. */
  readonly launcher?: Launcher | undefined;
}

export interface Server {
  readonly url: string;
  readonly db: Db;
  /** Of the tenant `default` on its first start with an embedded database. */
  readonly firstKey: string | undefined;
  /** Stops claiming, ends streams, answers long polls, drains, closes; within 10 s. Repeat: safe. */
  close(): Promise<void>;
}

/** Everything that one process of Runplane does: database, HTTP, background loops. */
export async function serve({
  config,
  say = () => undefined,
  logger = { level: config.logLevel },
  launcher,
}: ServeOptions): Promise<Server> {
  const opened: (() => Promise<unknown>)[] = []; // in the order of opening; closed from the end
  let closing: Promise<void> | undefined;
  const closeAll = (): Promise<void> => (closing ??= closeFromTheEnd(opened));
  try {
    const { url, directUrl } = await findDatabase(config, opened, say);
    if (config.migrate) for (const name of await migrate(directUrl)) say(`applied the migration ${name}`);
    const log: { app?: App } = {};
    const db = await openDb({
      url,
      directUrl,
      poolMax: config.poolMax,
      applicationName: 'runplane-api',
      preparedStatements: config.preparedStatements,
      startupSettings: config.startupSettings,
      coalesce: config.coalesce,
      lockTimeoutMs: config.lockTimeoutMs,
      statementTimeoutMs: config.statementTimeoutMs,
      onError: (error, where) => log.app?.log.warn({ err: error, where }, 'database'),
    });
    opened.push(() => db.close());
    const { storeId, rebased } = await requireStore(db);
    if (rebased) say('the store was restored into another cluster, or promoted: feed numbers were rebased, cursors of before stay valid');
    await registerBackends(db, config.backends);
    const firstKey = config.databaseUrl === undefined ? await makeFirstKey(db) : undefined;

    const credentials = new Credentials(db);
    const loops: Loop[] = [];
    const relays: Relay[] = [];
    const stopping = new AbortController();
    const archive = config.archiveDir === undefined ? undefined : createFolderArchive({ dir: config.archiveDir });
    const app = await buildApp({
      db,
      credentials,
      logger,
      archive,
      loops: () => loops,
      relays: () => relays,
      waitersMax: config.waitersMax,
      processMetrics: true,
    });
    log.app = app;
    await db.hub.start();
    // Both at once: no further claims, and nobody waits for a pass that is still busy with a launch.
    opened.push(() => {
      stopping.abort(new Error('this process is stopping'));
      return Promise.all([...loops.map((loop) => loop.stop()), app.close()]);
    });
    const address = await app.listen({ host: config.host, port: config.port });
    const publicUrl = config.publicUrl ?? address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');

    const relay = config.relay && config.sinks.length > 0 ? await relayOf(config, db, app) : undefined;
    if (relay !== undefined) opened.push(() => relay.stop());
    relays.push(...(relay === undefined ? [] : [relay]));

    const launch = { config, db, storeId, apiUrl: publicUrl, signal: stopping.signal, log: (line: string) => app.log.info(line) };
    const dispatch = launcher ?? (config.dispatch ? await launcherOf(launch) : undefined);
    const collector = config.storageRoot === undefined ? undefined : createFolderCollector({ root: config.storageRoot });
    loops.push(
      ...startLoops({
        db,
        credentials,
        launcher: dispatch,
        collector,
        retention: config.retention ? { archive, outbox: outboxAges(config) } : 'off',
        owner: newOwner(),
        onError: loopErrors(app),
        onAlert: (facts, what) => app.log.warn(facts, what),
      }),
    );
    return { url: publicUrl, db, firstKey, close: closeAll };
  } catch (error) {
    await closeAll().catch(() => undefined);
    throw error;
  }
}

/** A rebase that cannot be done now (a writer stays open) must not read as a broken database. */
async function requireStore(db: Db): ReturnType<typeof checkStore> {
  return checkStore(db).catch(async (error: unknown) => {
    if (!(await isRebaseNeeded(db.sql).catch(() => false))) throw error;
    throw new ConfigError(
      `the store was restored into another cluster, or promoted, and its feed could not be rebased (${redactError(error)}): end the transactions that are open on runplane.outbox_events, then start again or call \`runplane feed rebase\``,
    );
  });
}

/** All of them, also when one fails; the first failure is the caller's. */
async function closeFromTheEnd(opened: readonly (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const close of opened.toReversed()) await close().catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

async function findDatabase(
  config: Config,
  opened: (() => Promise<unknown>)[],
  say: (line: string) => void,
): Promise<{ url: string; directUrl: string }> {
  if (config.databaseUrl !== undefined) return { url: config.databaseUrl, directUrl: config.databaseDirectUrl ?? config.databaseUrl };
  await mkdir(config.dataDir, { recursive: true });
  const postgres = await startEmbeddedPostgres({ dataDir: postgresDir(config.dataDir), durability: 'server-default', log: say });
  opened.push(() => postgres.stop());
  return { url: postgres.url, directUrl: postgres.url };
}

/** A database of our own has nobody who could make the first key. */
async function makeFirstKey(db: Db): Promise<string | undefined> {
  if ((await listTenants(db.sql)).length > 0) return undefined;
  await ensureTenant(db.sql, 'default');
  const { key } = await createApiKey(db.sql, { tenantId: 'default', name: 'first key', scopes: [...SCOPES] });
  return key;
}

interface LaunchersOf {
  readonly config: Config;
  readonly db: Db;
  readonly storeId: string;
  readonly apiUrl: string;
  /** Ends the requests of a launch that is under way. */
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}

/** Each profile says which launcher its runners come from; the Kubernetes client is loaded only where a profile needs it. */
async function launcherOf({ config, db, storeId, apiUrl, signal, log }: LaunchersOf): Promise<Launcher> {
  const issueToken = ({ tenantId, runId }: { tenantId: string; runId: string }) => issueRunToken(db.sql, { tenantId, runId });
  const { backends, workspaceRoot, kubeconfig } = config;
  const common = { apiUrl, backends, issueToken, log };
  await mkdir(workspaceRoot, { recursive: true });
  const runnerProgram = path.join(path.dirname(require.resolve('@runplane/runner/package.json')), 'dist/main.js');
  const runnerCommand = [process.execPath, runnerProgram];
  const stateDir = path.join(config.dataDir, 'runners');
  const processes = createProcessLauncher({ ...common, runnerCommand, stateDir, workspaceRoot });
  if (!usesKubernetes(backends)) return createLauncherByProfile(backends, { process: processes });
  const jobs = await createKubernetesLauncher({ ...common, storeId, kubeconfig, signal });
  return createLauncherByProfile(backends, { process: processes, kubernetes: jobs });
}

const DAY_MS = 86_400_000;

function outboxAges({ outboxKeepDays, consumerSilentDays }: Config): OutboxAges {
  return { keepMs: outboxKeepDays === 0 ? null : outboxKeepDays * DAY_MS, silentMs: consumerSilentDays * DAY_MS };
}

async function relayOf(config: Config, db: Db, app: App): Promise<Relay> {
  const report = loopErrors(app);
  return startRelay(db, { sinks: await openSinks(db, config.sinks, report), owner: newOwner(), onError: report });
}

/** One incarnation of this process: a restart under the same name is somebody else. */
function newOwner(): string {
  return `${os.hostname().slice(0, 60)}/${process.pid}/${newId('api')}`;
}

function loopErrors(app: App): (error: unknown, loop: string) => void {
  return (error, loop) => {
    app.log[isPassing(error) ? 'warn' : 'error']({ err: error, loop }, 'a background pass failed');
  };
}
