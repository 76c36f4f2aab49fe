import { DomainError } from '../domain-error';

// What waits before a session.

/** No such submission in this session. */
export class SubmissionNotFound extends DomainError<'submission_not_found', { sessionId: string; operationId: string }> {
  readonly code = 'submission_not_found';
}

/** The session has a submission with this operation id or submission id. */
export class SubmissionExists extends DomainError<'submission_exists', { sessionId: string; operationId: string; submissionId: string }> {
  readonly code = 'submission_exists';
}

/** The submission has ended in another way, or is not in the state that the event is for. */
export class SubmissionClosed extends DomainError<'submission_closed', { sessionId: string; operationId: string; state: string }> {
  readonly code = 'submission_closed';
}

/** The session has moved on since the revision that the caller expects: read it again, and decide again. */
export class RevisionConflict extends DomainError<
  'revision_conflict',
  { sessionId: string; expectedRevision: number; lastSequence: number }
> {
  readonly code = 'revision_conflict';
}

/** The claim that this epoch names is over: somebody else may be working on the submission. */
export class ClaimLost extends DomainError<
  'claim_lost',
  { sessionId: string; operationId: string; epoch: number; currentEpoch: number | null }
> {
  readonly code = 'claim_lost';
  override readonly failureKind = 'runner-lease-conflict';
}

/** The session has as many unfinished submissions as it may: repeat the call when some have ended. */
export class SubmissionQueueFull extends DomainError<'submission_queue_full', { sessionId: string; open: number; openMax: number }> {
  readonly code = 'submission_queue_full';
  override readonly retryable = true;
}

export type SubmissionError = SubmissionNotFound | SubmissionExists | SubmissionClosed | RevisionConflict | ClaimLost | SubmissionQueueFull;
