import { CursorExpired, defineCursor, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, type SessionChanges } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { listChangesPage, type ChangePlace } from './session-list.sql';

const BIGINT_MAX = 2n ** 63n - 1n;
const changeCursor = defineCursor(
  'session-changes',
  z.strictObject({
    store: z.string(),
    tx: z
      .string()
      .regex(/^\d{1,19}$/)
      .refine((digits) => /^\d+$/.test(digits) && BigInt(digits) <= BIGINT_MAX),
    sessionId: z
      .string()
      .max(200)
      .regex(/^[^\0]*$/),
  }),
);

const START: ChangePlace = { changedTx: -1n, sessionId: '' };
const encode = (storeId: string, { changedTx, sessionId }: ChangePlace): string =>
  changeCursor.encode({ store: storeId, tx: String(changedTx < 0n ? 0n : changedTx), sessionId });

export interface ListSessionChanges {
  readonly tenantId: string;
  /** A cursor of an earlier page, `start` (default), or `now`: behind the last change that is there. */
  readonly after?: string | undefined;
  readonly readerId?: string | undefined;
  readonly limit?: number | undefined;
}

/**
 * A tenant's sessions in the order of their changes, each once, as it is now: a reader that follows `cursor` sees the last version of every
 * session that changes, whatever transactions overlap or roll back.
 *
 * A change is numbered by its transaction (`changed_tx`, never below the number before) and is shown only below the horizon, the oldest
 * transaction that is still open: so no change can appear at or before a place that has been read. The cursor is the place of the last session
 * returned, never the horizon: see docs/adr/0016.
 *
 * Returns   `cursor` to go on from, also when the page is empty; `more`: read on at once.
 * Errors    InvalidCursor; CursorExpired (another store, or a copy that was not rebased).
 * Repeat    safe; reads only, one statement, no lock.   Source: the original's `version > cursor`, which missed late commits.
 */
export async function listSessionChanges(
  at: At,
  { tenantId, after = 'start', readerId, limit = LIST_ROWS_DEFAULT }: ListSessionChanges,
): Promise<SessionChanges> {
  const on = executorOf(at);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  if (after === 'now') {
    const { storeId, changes } = await listChangesPage(on, { tenantId, after: START, limit: 1, from: 'end' });
    return { sessions: [], cursor: encode(storeId, changes.at(-1)?.place ?? START), more: false };
  }
  const cursor = after === 'start' ? undefined : changeCursor.decode(after);
  const place = cursor === undefined ? START : { changedTx: BigInt(cursor.tx), sessionId: cursor.sessionId };
  const { storeId, horizon, changes } = await listChangesPage(on, { tenantId, readerId, after: place, limit: rowsMax, from: 'place' });
  if (cursor !== undefined && (cursor.store !== storeId || place.changedTx > horizon)) {
    throw new CursorExpired('The cursor belongs to another store: read again from data.oldestCursor.', {
      oldestCursor: encode(storeId, START),
      reason: 'other-store',
    });
  }
  return {
    sessions: changes.map(({ session }) => session),
    cursor: encode(storeId, changes.at(-1)?.place ?? place),
    more: changes.length === rowsMax,
  };
}
