import { SubmissionClosed, type RequeuedSubmission } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendAsServer, getSubmission, type SubmissionKey } from '@runplane/sessions';

/**
 * Gives a failed submission another try, behind everything that its session has: the sequence of the event is its new place, so that what may be worked
 * on already keeps its own (FIFO-1). Its claims are counted anew, from a greater epoch than it ever had.
 *
 * Returns   the submission; `changed: false` when it waits already.
 * Locks     session head → submission head.   Writes: session_events, outbox, submissions, submission_heads, session_heads.
 * Errors    SessionNotFound, SessionDeleted, SubmissionNotFound, SubmissionClosed (it is completed), SubmissionQueueFull.
 * Emits     submission/requeued.
 * Repeat    safe until it has failed again.   Keeps: FIFO-1, OWN-1.   Source: new; in the original it would have broken the order.
 */
export async function requeueSubmission(tx: Tx, { tenantId, sessionId, operationId }: SubmissionKey): Promise<RequeuedSubmission> {
  const key = { tenantId, sessionId };
  let changed = true;
  try {
    await appendAsServer(tx, key, { events: [{ type: 'submission/requeued', data: { operation_id: operationId } }] });
  } catch (error) {
    // Judged under the lock of the session's head, before anything is written.
    if (!(error instanceof SubmissionClosed) || error.data.state !== 'pending') throw error;
    changed = false;
  }
  return { submission: await getSubmission(tx, { ...key, operationId }), changed };
}
