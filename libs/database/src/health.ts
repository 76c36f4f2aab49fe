import type { MigrationContract, StoreHealth } from '@runplane/contracts';
import type { Db } from './db';
import { migrationStatus, readMigrations } from './migrate';
import { sql } from './sql';

/** What the database alone knows; what its rows say is the business of their owners. */
export type DatabaseHealth = Omit<StoreHealth, 'staleViews'>;

/** How long the database may take to answer before it counts as gone: a liveness probe must not wait for a full pool. */
const HEALTH_TIMEOUT_MS = 3_000;

/** The newest migration that a handle has seen, for the answer while the database is away. */
const lastSeen = new WeakMap<Db, string>();

/**
 * Whether the store can be used: the database answers and has every migration that this program needs; newer ones do no harm. Never
 * throws, answers within 3 s. The message is ours: a driver's may name hosts and users. Source: runs 2.3, 18.14, 18.50.
 */
export async function health(
  db: Db,
  { timeoutMs = HEALTH_TIMEOUT_MS, ...options }: { dir?: string | undefined; timeoutMs?: number } = {},
): Promise<DatabaseHealth> {
  const found = await withinTimeout(findState(db, options), timeoutMs);
  if (found === undefined) return answer(db, { reachable: false, missing: [], message: 'the database does not answer' });
  if (found.migrationId !== null) lastSeen.set(db, found.migrationId);
  const { missing, failed } = found;
  if (failed.length > 0) return answer(db, { reachable: true, missing, message: `migrations have failed: ${failed.join(', ')}` });
  if (missing.length > 0) return answer(db, { reachable: true, missing, message: `migrations are missing: ${missing.join(', ')}` });
  return answer(db, { reachable: true, missing, message: null });
}

async function findState(db: Db, options: { dir?: string | undefined }) {
  const { pending, failed } = await migrationStatus(db.sql, options);
  const [newest] =
    pending.length === 0
      ? await db.sql.query(sql`SELECT migration_name::text AS "name" FROM runplane._prisma_migrations
          WHERE finished_at IS NOT NULL AND rolled_back_at IS NULL ORDER BY migration_name DESC LIMIT 1`)
      : [];
  return { missing: pending, failed, migrationId: typeof newest?.['name'] === 'string' ? newest['name'] : null };
}

/** Undefined when it fails or takes too long; what it still does then is let go. */
async function withinTimeout<T>(work: Promise<T>, timeoutMs: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => {
      resolve(undefined);
    }, timeoutMs);
  });
  try {
    return await Promise.race([work.catch(() => undefined), timeout]);
  } finally {
    clearTimeout(timer);
  }
}

function answer(
  db: Db,
  { reachable, missing, message }: { reachable: boolean; missing: readonly string[]; message: string | null },
): DatabaseHealth {
  const ready = message === null;
  return {
    adapter: 'postgres',
    ready,
    reachable,
    migrationReady: ready,
    migrationId: lastSeen.get(db) ?? null,
    missingMigrations: [...missing],
    failureKind: ready ? null : 'infra-failed',
    message,
    credentialValuesPrinted: false,
  };
}

/** What this program expects of a database, from its files alone: the migrations with their checksums, and the tables they make. */
export async function migrationContract({ dir }: { dir?: string | undefined } = {}): Promise<MigrationContract> {
  const migrations = await readMigrations(dir);
  return {
    migrationIds: migrations.map(({ name }) => name),
    latestMigrationId: migrations.at(-1)?.name ?? null,
    checksums: Object.fromEntries(migrations.map(({ name, checksum }) => [name, checksum])),
    requiredTables: tablesOf(migrations.map(({ script }) => script)),
    valuesPrinted: false,
  };
}

/** Tables that the scripts make and do not drop again, in the order of their names. */
function tablesOf(scripts: readonly string[]): string[] {
  const tables = new Set<string>();
  for (const [, verb = '', name = ''] of scripts.join('\n').matchAll(/^(CREATE|DROP) TABLE (?:IF EXISTS )?"runplane"\."(\w+)"/gm)) {
    if (verb === 'CREATE') tables.add(name);
    else tables.delete(name);
  }
  return [...tables].sort();
}
