import { migrationStatus, sql, type Db } from '@runplane/database';
import type { Loop } from '../maintenance/run-every';
import type { Waiters } from './waiters';

export interface Readiness {
  readonly ready: boolean;
  /** Each with `ok`, or with what is wrong in words that are safe to show. */
  readonly checks: Readonly<Record<string, string>>;
}

export interface ReadinessOf {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly loops: () => readonly Loop[];
  readonly migrationsDir: string | undefined;
}

/** A loop that has not ended a pass for this long hangs. Passes that fail count as life: the database check says why they do. */
const LOOP_SILENT_MS = 120_000;

/** Whether this process can do its work: the database answers and has the migrations that this program needs, changes are heard, loops live. */
export async function checkReadiness({ db, waiters, loops, migrationsDir }: ReadinessOf): Promise<Readiness> {
  const checks = {
    database: await describe(
      () => db.sql.query(sql`SELECT 1 AS one`),
      () => 'ok',
      'does not answer',
    ),
    migrations: await describe(() => migrationStatus(db.sql, { dir: migrationsDir }), describeMigrations, 'unknown'),
    hub: db.hub.stats.connected ? 'ok' : 'the listener is not connected',
    loops: describeLoops(loops()),
    process: waiters.shuttingDown ? 'shutting down' : 'ok',
  };
  return { ready: Object.values(checks).every((check) => check === 'ok'), checks };
}

async function describe<T>(ask: () => Promise<T>, say: (answer: T) => string, otherwise: string): Promise<string> {
  try {
    return say(await ask());
  } catch {
    return otherwise;
  }
}

function describeMigrations({ pending, failed }: { pending: readonly string[]; failed: readonly string[] }): string {
  if (failed.length > 0) return `failed: ${failed.join(', ')}`;
  return pending.length > 0 ? `missing: ${pending.join(', ')}` : 'ok';
}

function describeLoops(loops: readonly Loop[]): string {
  const silent = loops.filter((loop) => loop.stats.sinceBeatMs > Math.max(LOOP_SILENT_MS, 3 * loop.intervalMs));
  return silent.length === 0 ? 'ok' : `silent: ${silent.map((loop) => loop.name).join(', ')}`;
}
