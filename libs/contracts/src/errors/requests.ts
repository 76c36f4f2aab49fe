import { DomainError } from '../domain-error';
import type { ApprovalState, InputState } from '../states';

// Approvals and questions to people.

/** No such approval in this session. */
export class ApprovalNotFound extends DomainError<'approval_not_found', { sessionId: string; approvalId: string }> {
  readonly code = 'approval_not_found';
}

/** The id was used for another approval: a call that changed needs an approval of its own. */
export class ApprovalConflict extends DomainError<'approval_conflict', { sessionId: string; approvalId: string; state: ApprovalState }> {
  readonly code = 'approval_conflict';
}

/** The approval has been resolved already, as its state says. */
export class ApprovalNotPending extends DomainError<
  'approval_not_pending',
  { sessionId: string; approvalId: string; state: ApprovalState; revision: number }
> {
  readonly code = 'approval_not_pending';
}

/** The approval's time is over, and nobody can decide it any more. */
export class ApprovalExpired extends DomainError<'approval_expired', { sessionId: string; approvalId: string }> {
  readonly code = 'approval_expired';
}

/** Nobody has approved this; `state` says what became of it. */
export class NotApproved extends DomainError<'not_approved', { sessionId: string; approvalId: string; state: ApprovalState }> {
  readonly code = 'not_approved';
}

/** What is about to be done is not what was approved: ask for an approval of its own. */
export class ApprovalMismatch extends DomainError<'approval_mismatch', { sessionId: string; approvalId: string }> {
  readonly code = 'approval_mismatch';
}

/** No such input request in this session. */
export class InputRequestNotFound extends DomainError<'input_request_not_found', { sessionId: string; requestId: string }> {
  readonly code = 'input_request_not_found';
}

/** The id was used for another input request. */
export class InputRequestConflict extends DomainError<
  'input_request_conflict',
  { sessionId: string; requestId: string; state: InputState }
> {
  readonly code = 'input_request_conflict';
}

/** The input request has been resolved already, as its state says. */
export class InputRequestNotPending extends DomainError<
  'input_request_not_pending',
  { sessionId: string; requestId: string; state: InputState; revision: number }
> {
  readonly code = 'input_request_not_pending';
}

/** The input request's time is over, and nobody can answer it any more. */
export class InputRequestExpired extends DomainError<'input_request_expired', { sessionId: string; requestId: string }> {
  readonly code = 'input_request_expired';
}

/** The schema for an answer is no JSON Schema, or one that this service does not check. */
export class InvalidInputSchema extends DomainError<'invalid_input_schema', { reason: string }> {
  readonly code = 'invalid_input_schema';
}

/** The answer does not fit the schema that it was asked with. */
export class InvalidInputValue extends DomainError<'invalid_input_value', { issues: readonly { path: string; message: string }[] }> {
  readonly code = 'invalid_input_value';
}

/** Whoever decided looked at another revision of what was asked: read it again, and decide anew. */
export class DecisionOutdated extends DomainError<'decision_outdated', { id: string; expectedRevision: number; revision: number }> {
  readonly code = 'decision_outdated';
}

/** The session has as many open requests to people as it may: wait for their answers. */
export class TooManyOpenRequests extends DomainError<'too_many_open_requests', { sessionId: string; openMax: number }> {
  readonly code = 'too_many_open_requests';
}

export type AskError =
  | ApprovalNotFound
  | ApprovalConflict
  | ApprovalNotPending
  | ApprovalExpired
  | NotApproved
  | ApprovalMismatch
  | InputRequestNotFound
  | InputRequestConflict
  | InputRequestNotPending
  | InputRequestExpired
  | InvalidInputSchema
  | InvalidInputValue
  | DecisionOutdated
  | TooManyOpenRequests;
