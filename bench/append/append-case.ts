import type { JsonObject } from '@runplane/contracts';
import type pg from 'pg';
import type { Caller } from '../support/measure';

export interface CaseSetting {
  readonly url: string;
  readonly admin: pg.Pool;
  /** Also the size of the case's pool. Each caller writes to a run of its own. */
  readonly callers: number;
}

/** One way to append events, made ready. */
export interface AppendCase {
  readonly callers: readonly Caller[];
  /** Rows in the database by table, besides those of the set-up, counted when all calls are done; each must be the number of events. */
  rowsWritten(): Promise<Readonly<Record<string, number>>>;
  close(): Promise<void>;
}

/** What a runner's program says: about 200 bytes of JSON, the same for every case. */
export const payloadOf = (commandId: string): JsonObject => ({
  text: 'The migration adds a partial index for open turns; the existing one stays until the next release has run for a day.',
  commandId,
});

export async function countRows(
  on: pg.Pool,
  counts: Readonly<Record<string, string>>,
  values: readonly unknown[] = [],
): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const [table, text] of Object.entries(counts)) {
    const { rows } = await on.query<{ n: string }>(text, [...values]);
    found[table] = Number(rows[0]?.n);
  }
  return found;
}
