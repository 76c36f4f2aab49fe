import { IdempotencyConflict, QUEUED_TURN_KIND, type JsonObject, type QueuedTurn } from '@runplane/contracts';
import type { SqlExecutor, Tx } from '@runplane/database';
import { acceptSubmission } from './accept-submission';
import { submissionHash, submissionNotFound } from './projections/submission';
import { countAhead, holdBackQueuedTurn, lookIntoQueue } from './queued-turn.sql';
import type { SessionKey } from './session.sql';
import { findSubmission } from './submission-rows.sql';
import { toReceipt } from './submission-shapes';

// A turn that waits behind others is a submission of its session: see admitTurn in libs/runs.

export interface WaitingTurn extends SessionKey {
  /** The key of the turn. */
  readonly operationId: string;
  /** QueuedTurnPayload, normalized. */
  readonly payload: JsonObject;
}

/**
 * What the queue of a session says to a turn: whether it is known there, and whether anything waits in it. Under the session's lock both stay so
 * for turns. Errors: IdempotencyConflict: the key is that of a queued turn with another content.
 */
export async function findQueuedTurn(on: SqlExecutor, turn: WaitingTurn): Promise<{ isKnown: boolean; isQueueEmpty: boolean }> {
  const found = await lookIntoQueue(on, turn, turn.operationId);
  const isKnown = found?.kind === QUEUED_TURN_KIND;
  if (isKnown && found.contentHash !== submissionHash({ kind: QUEUED_TURN_KIND, payload: turn.payload, source: {} })) {
    throw new IdempotencyConflict(
      `The key ${turn.operationId} of session ${turn.sessionId} is that of a queued turn with another content.`,
      {
        resource: 'turn',
        id: found.submissionId ?? turn.operationId,
      },
    );
  }
  return { isKnown, isQueueEmpty: (found?.open ?? 0) === 0 };
}

/** How a queued turn stands. Errors: SubmissionNotFound. */
export async function readQueuedTurn(on: SqlExecutor, turn: WaitingTurn, { replayed }: { replayed: boolean }): Promise<QueuedTurn> {
  const { tenantId, sessionId, operationId } = turn;
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
 * Input     busyForMs: null, or how long the open turn is at least alive; undefined: the session has none.
 * Locks     session (held) → session head → submission head.   Writes, Emits, Errors: as acceptSubmission.
 */
export async function enqueueTurn(tx: Tx, turn: WaitingTurn, busyForMs: number | null | undefined): Promise<QueuedTurn> {
  const { tenantId, sessionId, operationId, payload } = turn;
  await acceptSubmission(tx, { tenantId, sessionId, operationId, submission: { kind: QUEUED_TURN_KIND, payload } });
  if (busyForMs !== undefined) await holdBackQueuedTurn(tx, turn, busyForMs);
  return readQueuedTurn(tx, turn, { replayed: false });
}
