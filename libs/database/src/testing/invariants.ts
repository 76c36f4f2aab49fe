import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { describeBackends, type RawQueries } from './blocked';

/** One query whose rows are broken promises: which invariant, and what breaks it. */
export const INVARIANTS_FILE = path.resolve(__dirname, '../../../../tests/support/invariants.sql');

export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

/**
 * Whole tables are compared, by hashes of all that must be equal. A nested loop, which statistics from a test's first rows suggest, takes half a minute for
 * a few hundred runs; a merge by the tenant alone meets every run with every other.
 */
const BY_WHOLE_TABLES = ['enable_nestloop = off', 'enable_mergejoin = off'];

export async function findViolations(on: RawQueries): Promise<Violation[]> {
  const settings = BY_WHOLE_TABLES.map((setting) => `SET LOCAL ${setting};\n`).join('');
  const results = (await on.query(`${settings}${readFileSync(INVARIANTS_FILE, 'utf8')}`)) as unknown as { rows: Violation[] }[];
  return results.at(-1)?.rows ?? [];
}

/** Looks on a connection of its own, after one test as after the next: the query is planned once, which takes ten times as long as a look. */
export async function violationsOn(client: pg.Client): Promise<() => Promise<Violation[]>> {
  for (const setting of BY_WHOLE_TABLES) await client.query(`SET ${setting}`);
  const query = { name: 'invariants', text: readFileSync(INVARIANTS_FILE, 'utf8') };
  return async () => (await client.query<Violation & pg.QueryResultRow>(query)).rows;
}

export async function assertInvariants(on: RawQueries): Promise<void> {
  assertNone(await findViolations(on));
}

export function assertNone(violations: readonly Violation[]): void {
  if (violations.length === 0) return;
  throw new Error(`the database breaks its invariants:\n${violations.map((each) => `${each.invariant}: ${each.detail}`).join('\n')}`);
}

/** Nobody holds a transaction open or waits for a lock. What is just ending gets a moment for it. */
export async function assertNothingOpen(on: RawQueries, patienceMs = 60_000): Promise<void> {
  const late = Date.now() + patienceMs;
  for (;;) {
    const { rows } = await on.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND (state LIKE 'idle in transaction%' OR wait_event_type = 'Lock')`,
    );
    if (rows.length === 0) return;
    if (Date.now() > late) throw new Error(`a transaction was left open, or waits for a lock:\n${await describeBackends(on)}`);
    await delay(20);
  }
}
