import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { sql, type SqlExecutor } from './sql';

// Applies prisma/migrations as `prisma migrate deploy` does: under the lock that Prisma takes, recorded in the table that Prisma keeps, with
// Prisma's checksum. Either may follow the other, and a start at the same time waits. It needs no Prisma CLI and no schema engine.
//
// Beyond `deploy` it refuses an applied migration whose file has changed, and it runs each script together with its record in one
// transaction: a process that is killed in the middle leaves nothing behind, and the next start tries again. A script that PostgreSQL will
// not run inside a transaction (CONCURRENTLY) is run alone, and an interrupted one then needs `prisma migrate resolve`.
// Migrations that this version does not know are left in peace: a newer version has been here.

/** The key of Prisma's own session lock. */
const PRISMA_MIGRATE_LOCK = 72707369;

const LOCK_NOT_AVAILABLE = '55P03';

const CREATE_TABLE = `CREATE TABLE IF NOT EXISTS runplane._prisma_migrations (
    id                      VARCHAR(36) PRIMARY KEY NOT NULL,
    checksum                VARCHAR(64) NOT NULL,
    finished_at             TIMESTAMPTZ,
    migration_name          VARCHAR(255) NOT NULL,
    logs                    TEXT,
    rolled_back_at          TIMESTAMPTZ,
    started_at              TIMESTAMPTZ NOT NULL DEFAULT now(),
    applied_steps_count     INTEGER NOT NULL DEFAULT 0
)`;

/** The folder of the repository, seen from src/ and from dist/ alike. */
export const MIGRATIONS_DIR = path.resolve(__dirname, '../../../prisma/migrations');

export interface Migration {
  readonly name: string;
  readonly script: string;
  /** Lower-case hex SHA-256 of the file's bytes, as Prisma computes it. */
  readonly checksum: string;
}

export interface AppliedMigration {
  readonly name: string;
  readonly checksum: string;
  readonly finished: boolean;
  readonly rolledBack: boolean;
}

/** Names of migrations, each list in the order in which they are (or were) applied. */
export interface MigrationStatus {
  readonly pending: readonly string[];
  /** Started and not finished; `prisma migrate resolve` says what became of them. */
  readonly failed: readonly string[];
  /** Applied, and the file has changed since. */
  readonly edited: readonly string[];
  /** Applied by a version that has files we do not have. */
  readonly unknown: readonly string[];
}

export interface MigrateOptions {
  readonly dir?: string | undefined;
  /** How long to wait for another runner, and for any lock inside a script. */
  readonly lockTimeoutMs?: number | undefined;
}

/** A `Db`, or what of it a migration needs: its own session, so the URL that passes no transaction pooler. */
export interface MigrationTarget {
  readonly options: { readonly url: string; readonly directUrl?: string | undefined };
}

export class MigrationError extends Error {
  override readonly name = 'MigrationError';
}

export async function readMigrations(dir: string = MIGRATIONS_DIR): Promise<Migration[]> {
  const entries = await readdir(dir, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  return Promise.all(
    names.sort().map(async (name) => {
      const bytes = await readFile(path.join(dir, name, 'migration.sql'));
      return { name, script: bytes.toString('utf8'), checksum: createHash('sha256').update(bytes).digest('hex') };
    }),
  );
}

/** What the files say against what the table says. */
export function compareMigrations(files: readonly Migration[], applied: readonly AppliedMigration[]): MigrationStatus {
  const current = applied.filter((row) => !row.rolledBack);
  const finished = current.filter((row) => row.finished);
  const names = new Set(finished.map((row) => row.name));
  const checksums = new Map(files.map((file) => [file.name, file.checksum]));
  return {
    pending: files.filter((file) => !names.has(file.name)).map((file) => file.name),
    failed: current.filter((row) => !row.finished).map((row) => row.name),
    edited: finished.filter((row) => checksums.has(row.name) && checksums.get(row.name) !== row.checksum).map((row) => row.name),
    unknown: finished.filter((row) => !checksums.has(row.name)).map((row) => row.name),
  };
}

/** Reads what is missing and what is wrong; changes nothing, takes no lock. */
export async function migrationStatus(on: SqlExecutor, { dir }: { dir?: string | undefined } = {}): Promise<MigrationStatus> {
  const files = await readMigrations(dir);
  const [table] = await on.query(sql`SELECT to_regclass('runplane._prisma_migrations') IS NOT NULL AS present`);
  if (table?.['present'] !== true) return compareMigrations(files, []);
  const rows = await on.query(sql`
    SELECT migration_name::text AS name, checksum::text AS checksum,
           finished_at IS NOT NULL AS finished, rolled_back_at IS NOT NULL AS "rolledBack"
      FROM runplane._prisma_migrations ORDER BY started_at, migration_name`);
  return compareMigrations(
    files,
    rows.map((row) => ({
      name: String(row['name']),
      checksum: String(row['checksum']),
      finished: row['finished'] === true,
      rolledBack: row['rolledBack'] === true,
    })),
  );
}

/**
 * Applies the pending migrations, in the order of their names, in a session of its own; returns the names of those it applied.
 *
 * Locks     Prisma's advisory lock, for the whole call; then whatever the scripts take, each waited for no longer than `lockTimeoutMs`.
 * Errors    MigrationError: one has failed before, was edited after it was applied, or fails now.
 * Repeat    safe; two at once apply each migration once.
 */
export async function migrate(target: string | MigrationTarget, options: MigrateOptions = {}): Promise<string[]> {
  const files = await readMigrations(options.dir);
  const url = typeof target === 'string' ? target : (target.options.directUrl ?? target.options.url);
  const client = new pg.Client({ connectionString: url, application_name: 'runplane-migrate' });
  client.on('error', () => undefined); // the query under way is rejected with it
  await client.connect();
  try {
    const settings = sessionSettings(options.lockTimeoutMs ?? 10_000);
    await client.query(settings);
    await takeLock(client);
    await createTableIfMissing(client);
    const { pending, failed, edited } = compareMigrations(files, await readApplied(client));
    if (failed.length > 0) {
      throw new MigrationError(
        `started and never finished: ${failed.join(', ')}. Look at the column logs of runplane._prisma_migrations, repair, then say what became of it: prisma migrate resolve --applied or --rolled-back NAME`,
      );
    }
    if (edited.length > 0) {
      throw new MigrationError(
        `edited after it was applied: ${edited.join(', ')}. Restore the file, and put the change into a new migration`,
      );
    }
    for (const migration of files.filter((file) => pending.includes(file.name))) {
      await apply(client, migration);
      await client.query(settings); // a script may have changed them
    }
    return [...pending];
  } finally {
    await client.end(); // ends the session, and with it the lock
  }
}

/** As Prisma runs them: unqualified names are ours. Nothing but a lock cuts a script short. */
function sessionSettings(lockTimeoutMs: number): string {
  return `RESET ALL; SET TimeZone = 'UTC'; SET search_path = runplane; SET lock_timeout = ${Math.trunc(lockTimeoutMs)};
    SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0`;
}

async function takeLock(client: pg.Client): Promise<void> {
  try {
    await client.query('SELECT pg_advisory_lock($1)', [PRISMA_MIGRATE_LOCK]);
  } catch (error) {
    if (sqlState(error) !== LOCK_NOT_AVAILABLE) throw error;
    throw new MigrationError('another migration is running on this database; it did not end in time', { cause: error });
  }
}

async function createTableIfMissing(client: pg.Client): Promise<void> {
  // IF NOT EXISTS asks for the right to create even when there is nothing to do.
  const { rowCount } = await client.query(`SELECT FROM pg_namespace WHERE nspname = 'runplane'`);
  if (rowCount === 0) await client.query('CREATE SCHEMA runplane');
  const { rows } = await client.query<{ present: boolean }>(`SELECT to_regclass('runplane._prisma_migrations') IS NOT NULL AS present`);
  if (rows[0]?.present !== true) await client.query(CREATE_TABLE);
}

async function readApplied(client: pg.Client): Promise<AppliedMigration[]> {
  const { rows } = await client.query<AppliedMigration>(
    `SELECT migration_name AS name, checksum, finished_at IS NOT NULL AS finished, rolled_back_at IS NOT NULL AS "rolledBack"
       FROM runplane._prisma_migrations ORDER BY started_at, migration_name`,
  );
  return rows;
}

async function apply(client: pg.Client, migration: Migration): Promise<void> {
  const together = !/\bCONCURRENTLY\b/i.test(migration.script);
  const id = randomUUID();
  const begin = (): Promise<unknown> =>
    client.query(
      'INSERT INTO runplane._prisma_migrations (id, checksum, started_at, migration_name) VALUES ($1, $2, clock_timestamp(), $3) ON CONFLICT DO NOTHING',
      [id, migration.checksum, migration.name],
    );
  try {
    if (together) await client.query('BEGIN');
    await begin();
    await client.query(migration.script); // the simple protocol takes a whole script, function bodies included
    await client.query('UPDATE runplane._prisma_migrations SET finished_at = clock_timestamp(), applied_steps_count = 1 WHERE id = $1', [
      id,
    ]);
    if (together) await client.query('COMMIT');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    await client.query('ROLLBACK').catch(() => undefined);
    if (together && sqlState(error) === LOCK_NOT_AVAILABLE) {
      throw new MigrationError(`${migration.name}: ${reason}. Nothing was changed: try again when fewer transactions are open`, {
        cause: error,
      });
    }
    await begin().catch(() => undefined);
    await client.query('UPDATE runplane._prisma_migrations SET logs = $2 WHERE id = $1', [id, reason]).catch(() => undefined);
    throw new MigrationError(`${migration.name}: ${reason}`, { cause: error });
  }
}

function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}
