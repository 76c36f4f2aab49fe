import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

// How a race test knows that the other side has come to its lock: it asks PostgreSQL, and sleeps for no fixed time.

const POLL_MS = 10;
const PATIENCE_MS = 60_000;

export interface RawQueries {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}

export interface Backend {
  readonly pid: number;
}

/** A connection beside the pool, for the side of a race that a test steers statement by statement. The caller ends it. */
export async function openClient(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'test', options: '-c TimeZone=UTC' });
  client.on('error', () => undefined); // a test may kill the server; the query under way says so
  await client.connect();
  return client;
}

export async function backendPid(on: RawQueries): Promise<number> {
  const { rows } = await on.query('SELECT pg_backend_pid() AS pid');
  return (rows[0] as Backend).pid;
}

/**
 * Resolves when the given backend, or that many backends of this database, wait for a lock that another one holds; gives their pids.
 * Fails after a minute with what every backend is doing.
 */
export async function waitUntilBlocked(db: RawQueries | { readonly pool: RawQueries }, waiting: Backend | number): Promise<number[]> {
  const on = 'pool' in db ? db.pool : db;
  const late = Date.now() + PATIENCE_MS;
  for (;;) {
    const { rows } = await on.query(
      `SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0`,
    );
    const blocked = (rows as Backend[]).map((row) => row.pid);
    if (typeof waiting === 'number' ? blocked.length >= waiting : blocked.includes(waiting.pid)) return blocked;
    if (Date.now() > late) {
      const whom = typeof waiting === 'number' ? `${waiting} backends` : `backend ${waiting.pid}`;
      throw new Error(`${whom} did not come to wait for a lock:\n${await describeBackends(on)}`);
    }
    await delay(POLL_MS);
  }
}

/** What each connection to this database is doing, a line each. */
export async function describeBackends(on: RawQueries): Promise<string> {
  const { rows } = await on.query(
    `SELECT format('%s %s: %s, waits for %s, blocked by %s: %s', pid, application_name, state, coalesce(wait_event, '-'),
                   pg_blocking_pids(pid), regexp_replace(left(query, 200), '\\s+', ' ', 'g')) AS line
       FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY pid`,
  );
  return (rows as { line: string }[]).map((row) => row.line).join('\n');
}
