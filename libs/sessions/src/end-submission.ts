import {
  ClaimLost,
  EndSubmission,
  freeText,
  parseInput,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  type EndedSubmission,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendAsServer } from './append-as-server';
import { assertOpen } from './judge-append';
import { submissionClosed, submissionNotFound } from './projections/submission';
import { requireLockedHead } from './require-head';
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
export async function endSubmission(
  tx: Tx,
  { tenantId, sessionId, operationId, end, runId }: EndSubmissionInput,
): Promise<EndedSubmission> {
  const key = { tenantId, sessionId };
  const { state, error, claimEpoch } = parseInput(EndSubmission, end);
  assertOpen(await requireLockedHead(tx, key));
  const head = await lockQueueHead(tx, key);
  const submission = await findSubmission(tx, key, operationId);
  if (submission === undefined) throw submissionNotFound(sessionId, operationId);
  const decision = decideEnd(submission, head, { state, claimEpoch });
  if (decision.kind === 'closed') throw submissionClosed(sessionId, submission);
  if (decision.kind === 'claim-lost') throw claimLost(key, { operationId, epoch: decision.epoch, currentEpoch: decision.currentEpoch });
  if (decision.kind === 'keep') return { submission: toSubmission(submission), changed: false };
  const data = {
    operation_id: operationId,
    ...(state === 'failed' && error != null ? { error: freeText(error, SUBMISSION_ERROR_CODE_POINTS_MAX) } : {}),
    ...(state === 'completed' && runId !== undefined ? { run_id: runId } : {}),
  };
  await appendAsServer(tx, key, { events: [{ type: `submission/${state}`, data }] });
  const ended = await findSubmission(tx, key, operationId);
  if (ended === undefined) throw submissionNotFound(sessionId, operationId);
  return { submission: toSubmission(ended), changed: true };
}

function claimLost({ sessionId }: SessionKey, facts: { operationId: string; epoch: number; currentEpoch: number | null }): ClaimLost {
  return new ClaimLost(`The claim ${facts.epoch} of submission ${facts.operationId} in session ${sessionId} is over.`, {
    sessionId,
    ...facts,
  });
}
