import type { Submission, SubmissionReceipt } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { encodeFeedCursor } from '@runplane/outbox';
import type { SubmissionRow } from './submission-rows.sql';

// Submissions as the wire shows them.

const cursorOf = ({ storeId, tx, position }: SubmissionRow): string | null =>
  tx === null || position === null ? null : encodeFeedCursor(storeId, { tx, position });

export function toReceipt(row: SubmissionRow, status: SubmissionReceipt['status']): SubmissionReceipt {
  const { operationId, submissionId, sessionId, state, acceptedSequence } = row;
  return { operationId, submissionId, sessionId, status, state, acceptedSequence, durableCursor: cursorOf(row) };
}

export function toSubmission(row: SubmissionRow): Submission {
  const { owner, epoch, claimInMs } = row;
  const isClaimed = owner !== null && epoch !== null && claimInMs !== null && isLive(claimInMs);
  return {
    operationId: row.operationId,
    submissionId: row.submissionId,
    sessionId: row.sessionId,
    kind: row.kind,
    payload: row.payload,
    source: row.source,
    expectedRevision: row.expectedRevision,
    state: row.state,
    claim: isClaimed ? { owner, epoch, remainingMs: claimInMs } : null,
    attempts: row.attempts,
    lastError: row.lastError,
    readyInMs: isClaimed || row.readyInMs === null ? null : Math.max(row.readyInMs, 0),
    acceptedSequence: row.acceptedSequence,
    place: row.place,
    durableCursor: cursorOf(row),
    createdAt: row.createdAt,
    endedAt: row.endedAt,
    endedSequence: row.endedSequence,
    runId: row.runId,
  };
}
