import { createHash, randomBytes } from 'node:crypto';
import pg from 'pg';
import { openDb, type Db, type DbOptions } from '../db';
import { migrate, readMigrations } from '../migrate';
import { openClient } from './blocked';
import { assertNone, assertNothingOpen, violationsOn, type Violation } from './invariants';

export interface TestDatabaseOptions {
  /** Settings of the database, for every connection that does not set its own: `{ timezone: 'America/New_York' }`. */
  readonly settings?: Readonly<Record<string, string>> | undefined;
  readonly db?: Partial<Omit<DbOptions, 'url'>> | undefined;
  /** False for a file that breaks invariants on purpose, and looks at `violations()` itself. */
  readonly checkInvariants?: boolean | undefined;
}

export interface TestDatabase {
  readonly url: string;
  /** There inside tests and hooks only. */
  readonly db: Db;
  violations(): Promise<Violation[]>;
}

/** Tests send twenty calls at once to a pool of ten: on a machine ten times slower the last of them wait long, and are still no fault. */
const POOL_WAIT_MS = 15_000;

/** Held while the template is made: two jest workers make it once. */
const TEMPLATE_LOCK = 20_260_101;

/**
 * A fresh copy of the migrated template for the calling spec file; dropped after its tests. After each test the invariants must hold, and no
 * connection may hold a transaction open or wait for a lock.
 */
export function useDatabase(options: TestDatabaseOptions = {}): TestDatabase {
  const server = testServerUrl();
  const name = `test_${randomBytes(8).toString('hex')}`;
  const url = urlOf(server, name);
  let db: Db | undefined;
  let observer: pg.Client | undefined;
  let findViolations: (() => Promise<Violation[]>) | undefined;

  beforeAll(async () => {
    await createTestDatabase(server, name, options.settings ?? {});
    observer = await openClient(url);
    findViolations = await violationsOn(observer);
    db = await openDb({ ...throughPooler(url), connectTimeoutMs: POOL_WAIT_MS, ...options.db });
  });
  afterEach(async () => {
    if (observer === undefined || findViolations === undefined) return; // beforeAll has failed, and said why
    await assertNothingOpen(observer);
    if (options.checkInvariants !== false) assertNone(await findViolations());
  });
  afterAll(async () => {
    await db?.close();
    await observer?.end();
    await dropTestDatabase(server, name);
  });

  const there = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error('the database is there inside tests and hooks only');
    return value;
  };
  return {
    url,
    get db() {
      return there(db);
    },
    violations: () => there(findViolations)(),
  };
}

/** How a test reaches its database: directly, or by the pooler that `npm run test:pooler` has started, whose old kind knows neither start-up
 * options nor prepared statements. */
function throughPooler(url: string): DbOptions {
  const port = process.env['TEST_POOLER_PORT'];
  if (port === undefined) return { url };
  const pooled = new URL(url);
  pooled.port = port;
  return { url: pooled.toString(), directUrl: url, preparedStatements: false, startupSettings: false };
}

/** The server that jest.preset.cjs has started, or the one that TEST_POSTGRES_URL names. */
export function testServerUrl(): string {
  const url = process.env['TEST_POSTGRES_URL'];
  if (!url) throw new Error('TEST_POSTGRES_URL is not set: jest.preset.cjs starts a server and sets it');
  return url;
}

/** A migrated database for a test that needs more than `useDatabase` gives; returns its URL. The caller drops it. */
export async function createTestDatabase(server: string, name: string, settings: Readonly<Record<string, string>> = {}): Promise<string> {
  await onServer(server, async (client) => {
    await client.query(`CREATE DATABASE ${name} TEMPLATE ${await ensureTemplate(server, client)}`);
    for (const [setting, value] of Object.entries(settings)) {
      await client.query(`ALTER DATABASE ${name} SET ${pg.escapeIdentifier(setting)} = ${pg.escapeLiteral(value)}`);
    }
  });
  return urlOf(server, name);
}

export async function dropTestDatabase(server: string, name: string): Promise<void> {
  await onServer(server, (client) => client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
}

/** The name of a database with every migration applied; made by whichever file comes first. */
async function ensureTemplate(server: string, client: pg.Client): Promise<string> {
  const migrations = await readMigrations();
  const hash = createHash('sha256').update(migrations.map((migration) => migration.checksum).join());
  const name = `template_${hash.digest('hex').slice(0, 16)}`;
  const exists = async (): Promise<boolean> =>
    (await client.query('SELECT FROM pg_database WHERE datname = $1 AND datistemplate', [name])).rowCount === 1;
  if (await exists()) return name;
  await client.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK]);
  try {
    if (await exists()) return name;
    await client.query(`DROP DATABASE IF EXISTS ${name}`); // one that was not finished
    await client.query(`CREATE DATABASE ${name}`);
    await migrate(urlOf(server, name));
    await client.query(`ALTER DATABASE ${name} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
    return name;
  } finally {
    await client.query('SELECT pg_advisory_unlock($1)', [TEMPLATE_LOCK]);
  }
}

function urlOf(server: string, database: string): string {
  const url = new URL(server);
  url.pathname = `/${database}`;
  url.searchParams.set('schema', 'runplane');
  return url.toString();
}

async function onServer<T>(server: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await openClient(urlOf(server, 'postgres'));
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
