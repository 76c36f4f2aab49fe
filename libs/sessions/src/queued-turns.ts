import { QUEUED_TURN_KIND, type JsonObject, type JsonValue, type QueuedTurn } from '@runplane/contracts';
import type { SqlExecutor, Tx } from '@runplane/database';
import { acceptSubmission } from './accept-submission';
import { submissionNotFound } from './projections/submission';
import { countAhead, holdBackQueuedTurn, lookIntoQueue } from './queued-turn.sql';
import type { SubmissionKey } from './read-submissions';
import { findSubmission } from './submission-rows.sql';
import { toReceipt } from './submission-shapes';

// A turn that waits behind others is a submission of its session: see admitTurn in libs/runs.

/** The operation id is the key of the turn. */
export interface WaitingTurn extends SubmissionKey {
  /** QueuedTurnPayload, normalized. */
  readonly payload: JsonObject;
}

/**
 * What the queue of a session says to a turn: the one that it knows by this key, and whether anything waits in it. Under the session's lock both stay
 * so for turns.
 */
export async function findQueuedTurn(
  on: SqlExecutor,
  { operationId, ...key }: SubmissionKey,
): Promise<{ known: { submissionId: string; payload: JsonValue } | undefined; isQueueEmpty: boolean }> {
  const found = await lookIntoQueue(on, key, operationId);
  const { submissionId = null, payload = null, open = 0 } = found ?? {};
  return { known: submissionId === null ? undefined : { submissionId, payload }, isQueueEmpty: open === 0 };
}

/** How a queued turn stands. Errors: SubmissionNotFound. */
export async function readQueuedTurn(
  on: SqlExecutor,
  { tenantId, sessionId, operationId }: SubmissionKey,
  { replayed }: { replayed: boolean },
): Promise<QueuedTurn> {
  const row = await findSubmission(on, { tenantId, sessionId }, operationId);
  if (row === undefined) throw submissionNotFound(sessionId, operationId);
  const { submissionId, state, durableCursor } = toReceipt(row, 'accepted');
  const { place, lastError } = row;
  const ahead = state === 'pending' ? await countAhead(on, { tenantId, sessionId }, place) : 0;
  return { disposition: 'queued', sessionId, operationId, submissionId, state, place, ahead, lastError, durableCursor, replayed };
}

/**
 * Puts a turn behind everything that its session has to do.
 *
 * Input     busyForMs: null, or how long the open turn is at least alive; undefined: the turn at the head of the queue is left as it is.
 * Locks     session (held) → session head → submission head.   Writes, Emits, Errors: as acceptSubmission.
 */
export async function enqueueTurn(tx: Tx, turn: WaitingTurn, busyForMs?: number | null): Promise<QueuedTurn> {
  const { tenantId, sessionId, operationId, payload } = turn;
  await acceptSubmission(tx, { tenantId, sessionId, operationId, submission: { kind: QUEUED_TURN_KIND, payload } });
  if (busyForMs !== undefined) await holdBackQueuedTurn(tx, turn, busyForMs);
  return readQueuedTurn(tx, turn, { replayed: false });
}
