import {
  ClaimLost,
  EndSubmission,
  freeText,
  isDomainError,
  parseInput,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  type EndedSubmission,
  type JsonObject,
} from '@runplane/contracts';
import { executorOf, inTransaction, isTx, type At, type Db, type Tx } from '@runplane/database';
import { appendAsServer } from './append-as-server';
import { announceAppend, prepare, readForAppend, writeBatch, type WantedAppend } from './append-events';
import { assertOpen } from './judge-append';
import { projectionsOf } from './projections';
import { submissionClosed, submissionNotFound } from './projections/submission';
import { requireLockedHead } from './require-head';
import { storableSessionEvents, type StorableSessionEvent } from './session-event-input';
import type { SessionKey } from './session.sql';
import { decideEnd } from './submission-decisions';
import { findSubmission, lockQueueHead } from './submission-rows.sql';
import { toSubmission } from './submission-shapes';

export interface EndSubmissionInput extends SessionKey {
  readonly operationId: string;
  readonly end: EndSubmission;
  /** The run that a completed turn became. */
  readonly runId?: string | undefined;
}

/**
 * Ends a submission: whoever worked on it says how, or somebody by hand. The next unfinished one of the session becomes its oldest.
 *
 * Input     state: completed or failed, with the reason of a failure (redacted, cut to 2,000 characters); claimEpoch: of the claim under which it was
 *           worked on, which must be in force. Without one nobody's claim is asked for: a claim that is in force is over with it.
 * Returns   the submission; `changed: false` when it had ended in this way before.
 * Locks     session head → submission head.   Writes: session_events, outbox, submissions, submission_heads, session_heads.
 * Errors    SessionNotFound, SessionDeleted, SubmissionNotFound, SubmissionClosed (it has ended in the other way), ClaimLost, InvalidRequest.
 * Emits     submission/completed or submission/failed.
 * Repeat    safe.   Keeps: OWN-1 to OWN-3, FIFO-1, LOG-2.
 * Source    the original's terminal events, which checked neither claim nor state.
 */
export async function endSubmission(at: At, input: EndSubmissionInput): Promise<EndedSubmission> {
  const { changed } = await markSubmissionEnded(at, input);
  const ended = await findSubmission(executorOf(at), input, input.operationId);
  if (ended === undefined) throw submissionNotFound(input.sessionId, input.operationId);
  return { submission: toSubmission(ended), changed };
}

/** The same without the submission in the answer. Called alone it reads and writes with one statement each, and locks first only where that fails. */
export async function markSubmissionEnded(at: At, input: EndSubmissionInput): Promise<{ changed: boolean }> {
  const wanted = wantedEnd(input);
  if (isTx(at)) return endLocked(at, wanted);
  if (await endBySight(at, wanted)) return { changed: true };
  return inTransaction(at, (tx) => endLocked(tx, wanted));
}

/** An end that has passed the door. */
export interface WantedEnd extends SessionKey {
  readonly operationId: string;
  readonly state: 'completed' | 'failed';
  readonly claimEpoch: number | undefined;
  /** Of its event. */
  readonly data: JsonObject;
}

export function wantedEnd({ tenantId, sessionId, operationId, end, runId }: EndSubmissionInput): WantedEnd {
  const { state, error, claimEpoch } = parseInput(EndSubmission, end);
  const data: JsonObject = {
    operation_id: operationId,
    ...(state === 'failed' && error != null ? { error: freeText(error, SUBMISSION_ERROR_CODE_POINTS_MAX) } : {}),
    ...(state === 'completed' && runId !== undefined ? { run_id: runId } : {}),
  };
  return { tenantId, sessionId, operationId, state, claimEpoch, data };
}

/** The event that tells of it. */
export const endEvent = ({ state, data }: WantedEnd): StorableSessionEvent[] =>
  storableSessionEvents([{ type: `submission/${state}`, data }]);

/** Writes what was read, if it still stands so and the claim is in force. False: it does not, or there is something to be told. */
async function endBySight(db: Db, end: WantedEnd): Promise<boolean> {
  const { tenantId, sessionId, operationId, claimEpoch } = end;
  const wanted: WantedAppend = {
    tenantId,
    sessionId,
    events: endEvent(end),
    epoch: null,
    sequence: undefined,
    appendId: undefined,
    claim: claimEpoch === undefined ? undefined : { operationId, epoch: claimEpoch },
  };
  try {
    const found = await readForAppend(db.sql, wanted, projectionsOf(db));
    const prepared = await prepare(db.sql, wanted, found);
    if (prepared.kind !== 'write' || (await writeBatch(db, wanted, found.head, prepared.batch)) === undefined) return false;
  } catch (error) {
    if (isDomainError(error) && error.code === 'submission_closed') return false;
    throw error;
  }
  announceAppend(db, wanted);
  return true;
}

async function endLocked(tx: Tx, { operationId, state, claimEpoch, data, ...key }: WantedEnd): Promise<{ changed: boolean }> {
  assertOpen(await requireLockedHead(tx, key));
  const head = await lockQueueHead(tx, key);
  const submission = await findSubmission(tx, key, operationId);
  if (submission === undefined) throw submissionNotFound(key.sessionId, operationId);
  const decision = decideEnd(submission, head, { state, claimEpoch });
  if (decision.kind === 'closed') throw submissionClosed(key.sessionId, submission);
  if (decision.kind === 'claim-lost') throw claimLost(key, { operationId, epoch: decision.epoch, currentEpoch: decision.currentEpoch });
  if (decision.kind === 'keep') return { changed: false };
  await appendAsServer(tx, key, { events: [{ type: `submission/${state}`, data }] });
  return { changed: true };
}

function claimLost({ sessionId }: SessionKey, facts: { operationId: string; epoch: number; currentEpoch: number | null }): ClaimLost {
  return new ClaimLost(`The claim ${facts.epoch} of submission ${facts.operationId} in session ${sessionId} is over.`, {
    sessionId,
    ...facts,
  });
}
