import { SUBMISSION_ATTEMPTS_MAX } from '@runplane/contracts';
import { inTransaction, type Db } from '@runplane/database';
import { lockHead, markSubmissionEnded, type SessionKey } from '@runplane/sessions';
import { CLAIM_ENDED } from './submission-claim.sql';
import { listExhausted, lockExhausted, putOffExhausted } from './submission-exhausted.sql';

/** Of one pass. */
const ROWS_MAX = 50;
/** How long one whose end could not be told is left alone. */
const PUT_OFF_MS = 60_000;

/**
 * Fails submissions that were claimed as often as they may be, and whose last claim is over: what stands behind them in their sessions goes on. The
 * event tells the last error.
 *
 * Returns   how many were failed, and of how many sessions the end could not be told; those come again a minute later.
 * Locks     session head → submission head, a transaction for each; whether it is still so is looked at under both.
 * Emits     submission/failed.   Repeat: safe, also by several processes.   Keeps: FIFO-1, OWN-1.
 */
export async function failExhaustedSubmissionsOnce(
  db: Db,
  { limit = ROWS_MAX, onError }: { limit?: number | undefined; onError?: ((error: unknown, key: SessionKey) => void) | undefined } = {},
): Promise<{ changed: number; failed: number }> {
  let changed = 0;
  let failed = 0;
  for (const key of await listExhausted(db.sql, limit)) {
    try {
      if (await inTransaction(db, (tx) => failExhausted(tx, key))) changed += 1;
    } catch (error) {
      failed += 1;
      onError?.(error, key);
      await putOffExhausted(db.sql, key, PUT_OFF_MS);
    }
  }
  return { changed, failed };
}

async function failExhausted(tx: Parameters<typeof lockHead>[0], key: SessionKey): Promise<boolean> {
  const session = await lockHead(tx, key);
  if (session === undefined || session.deletedAt !== null) return false;
  const head = await lockExhausted(tx, key);
  if (head === undefined) return false;
  const last = head.state === 'claimed' ? CLAIM_ENDED : (head.lastError ?? CLAIM_ENDED);
  const error = `given up after ${SUBMISSION_ATTEMPTS_MAX} attempts: ${last}`;
  const { changed } = await markSubmissionEnded(tx, { ...key, operationId: head.operationId, end: { state: 'failed', error } });
  return changed;
}
