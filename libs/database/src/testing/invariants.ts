import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describeBackends, type RawQueries } from './blocked';

/** One query whose rows are broken promises: which invariant, and what breaks it. */
export const INVARIANTS_FILE = path.resolve(__dirname, '../../../../tests/support/invariants.sql');

export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

export async function findViolations(on: RawQueries): Promise<Violation[]> {
  if (!existsSync(INVARIANTS_FILE)) return [];
  // Whole tables are compared. A nested loop, which statistics from a test's first rows suggest, takes half a minute for a few hundred runs.
  const results: unknown = await on.query(`SET LOCAL enable_nestloop = off;\n${readFileSync(INVARIANTS_FILE, 'utf8')}`);
  const [, found] = results as [unknown, { rows: Violation[] }];
  return found.rows;
}

export async function assertInvariants(on: RawQueries): Promise<void> {
  const violations = await findViolations(on);
  if (violations.length === 0) return;
  throw new Error(`the database breaks its invariants:\n${violations.map((each) => `${each.invariant}: ${each.detail}`).join('\n')}`);
}

/** Nobody holds a transaction open or waits for a lock. What is just ending gets a moment for it. */
export async function assertNothingOpen(on: RawQueries, patienceMs = 10_000): Promise<void> {
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
