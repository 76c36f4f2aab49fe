import { DomainError } from './domain-error';
import type { ApprovalState, InputState, NotReceivableReason } from './states';

// One class per situation. A new one needs a line in apps/api/src/error-status.ts, or the app does not compile; docs/errors.md is printed from here.

/** The input does not have the shape that the operation documents. */
export class InvalidRequest extends DomainError<'invalid_request', { issues: readonly { path: string; message: string }[] }> {
  readonly code = 'invalid_request';
}

/** A JSON value breaks the boundary rule of normalizeJson. */
export class InvalidJson extends DomainError<'invalid_json', { path: string; reason: string }> {
  readonly code = 'invalid_json';
}

/** A value is larger than its limit. */
export class PayloadTooLarge extends DomainError<'payload_too_large', { bytesMax: number }> {
  readonly code = 'payload_too_large';
}

/** An id or key is empty, too long or has characters that identifiers must not have. */
export class InvalidIdentifier extends DomainError<'invalid_identifier', { reason: string }> {
  readonly code = 'invalid_identifier';
}

/** A cursor is malformed, or was made for another list or filter: start again without one. */
export class InvalidCursor extends DomainError<'invalid_cursor', { reason: string }> {
  readonly code = 'invalid_cursor';
}

/** Turns and steers need an idempotency key (HTTP: the header Idempotency-Key). */
export class IdempotencyKeyRequired extends DomainError<'idempotency_key_required', Record<string, never>> {
  readonly code = 'idempotency_key_required';
  constructor(message = 'Turns and steers need an idempotency key (HTTP: the header Idempotency-Key).', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** Only the server writes events of this type or phase. */
export class ReservedEventType extends DomainError<'reserved_event_type', { type: string; phase?: string }> {
  readonly code = 'reserved_event_type';
}

/** An event names a command that does not belong to its run. */
export class CommandNotOfRun extends DomainError<'command_not_of_run', { commandId: string }> {
  readonly code = 'command_not_of_run';
}

/** No valid credential came with the call. */
export class Unauthenticated extends DomainError<'unauthenticated', Record<string, never>> {
  readonly code = 'unauthenticated';
  constructor(message = 'No valid credential came with the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** The credential lacks the scope that the operation needs. */
export class Forbidden extends DomainError<'forbidden', { scope: string }> {
  readonly code = 'forbidden';
}

/** No such tenant: create it first (CLI: `runplane tenants create`). */
export class TenantNotFound extends DomainError<'tenant_not_found', { tenantId: string }> {
  readonly code = 'tenant_not_found';
}

/** No such run for this tenant. */
export class RunNotFound extends DomainError<'run_not_found', { runId: string }> {
  readonly code = 'run_not_found';
}

/** Retention has removed the run, and its id is not used again; `archiveKey` names the copy where one was made. */
export class RunDeleted extends DomainError<'run_deleted', { runId: string; deletedAt: string; archiveKey: string | null }> {
  readonly code = 'run_deleted';
}

/** Retention has removed the events before `firstSeq`, some of which were asked for; the run itself is there. */
export class EventsPruned extends DomainError<
  'events_pruned',
  { runId: string; prunedAt: string; firstSeq: number; terminalSeq: number; archiveKey: string | null }
> {
  readonly code = 'events_pruned';
}

/** No such archive, or not in this sink. */
export class ArchiveNotFound extends DomainError<'archive_not_found', { archiveKey: string }> {
  readonly code = 'archive_not_found';
}

/** An archive is not what was written: cut, changed, or of another format. */
export class ArchiveDamaged extends DomainError<'archive_damaged', { archiveKey: string; reason: string }> {
  readonly code = 'archive_damaged';
}

/** No such command for this tenant. */
export class CommandNotFound extends DomainError<'command_not_found', { commandId: string }> {
  readonly code = 'command_not_found';
}

/** The command has no dispatch intent. */
export class IntentNotFound extends DomainError<'intent_not_found', { commandId: string }> {
  readonly code = 'intent_not_found';
}

/** No such session for this tenant. */
export class SessionNotFound extends DomainError<'session_not_found', { sessionId: string }> {
  readonly code = 'session_not_found';
}

/** No such runner for this tenant: register it first. */
export class RunnerNotFound extends DomainError<'runner_not_found', { runnerId: string }> {
  readonly code = 'runner_not_found';
}

/** No such backend profile in the registry. */
export class BackendNotFound extends DomainError<'backend_not_found', { profile: string }> {
  readonly code = 'backend_not_found';
}

/** No such runner job for this tenant. */
export class RunnerJobNotFound extends DomainError<'runner_job_not_found', { jobId: string }> {
  readonly code = 'runner_job_not_found';
}

/** No such API key. */
export class ApiKeyNotFound extends DomainError<'api_key_not_found', { keyId: string }> {
  readonly code = 'api_key_not_found';
}

/** The session has no note at this path. */
export class NoteNotFound extends DomainError<'note_not_found', { sessionId: string }> {
  readonly code = 'note_not_found';
}

/** No such route: GET /openapi.json lists them. */
export class RouteNotFound extends DomainError<'route_not_found', { path: string }> {
  readonly code = 'route_not_found';
}

/** The same key or reserved id was used before with other content. */
export class IdempotencyConflict extends DomainError<'idempotency_conflict', { resource: string; id: string }> {
  readonly code = 'idempotency_conflict';
}

/** The run has ended; nothing can be added to it. */
export class RunClosed extends DomainError<'run_closed', { runId: string; status: string; runFailureKind: string | null }> {
  readonly code = 'run_closed';
}

/** The run is being cancelled and takes no new work. */
export class RunCancelling extends DomainError<'run_cancelling', { runId: string }> {
  readonly code = 'run_cancelling';
  override readonly failureKind = 'cancelled';
}

/** Another runner holds the run under a live lease. */
export class RunClaimed extends DomainError<'run_claimed', { runId: string; claimedBy: string | null; leaseRemainingMs: number }> {
  readonly code = 'run_claimed';
  override readonly failureKind = 'runner-lease-conflict';
  override readonly retryable = true;
}

/** The claim that this epoch names is over: stop working on the run. */
export class LeaseLost extends DomainError<'lease_lost', { runId: string; epoch: number; currentEpoch: number }> {
  readonly code = 'lease_lost';
  override readonly failureKind = 'runner-lease-conflict';
}

/** The lease ended before this call: an ended lease is not prolonged, claim the run anew or stop. */
export class LeaseExpired extends DomainError<'lease_expired', { runId: string; epoch: number }> {
  readonly code = 'lease_expired';
  override readonly failureKind = 'runner-lease-conflict';
}

/** A batch is missing: send the batch with the expected producer sequence first. */
export class ProducerGap extends DomainError<'producer_gap', { expected: number; received: number }> {
  readonly code = 'producer_gap';
}

/** The producer sequence was used before for other events. */
export class ProducerConflict extends DomainError<'producer_conflict', { producerSequence: number }> {
  readonly code = 'producer_conflict';
}

/** The run has as many tool calls without a result as it may: report results first. */
export class TooManyOpenToolCalls extends DomainError<'too_many_open_tool_calls', { runId: string; open: number; openMax: number }> {
  readonly code = 'too_many_open_tool_calls';
}

/** The command has ended with another outcome. */
export class CommandClosed extends DomainError<'command_closed', { commandId: string; state: string }> {
  readonly code = 'command_closed';
}

/** Nobody has asked to cancel this run or command. */
export class NoCancelRequested extends DomainError<'no_cancel_requested', { runId: string }> {
  readonly code = 'no_cancel_requested';
}

/** The session has an open turn. */
export class SessionBusy extends DomainError<
  'session_busy',
  { sessionId: string; runId: string; commandId: string; holder: string | null; leaseRemainingMs: number | null; staleInMs: number | null }
> {
  readonly code = 'session_busy';
  override readonly retryable = true;
}

/** The session belongs to another project or backend profile. */
export class SessionBoundary extends DomainError<'session_boundary', { sessionId: string; field: string }> {
  readonly code = 'session_boundary';
}

/** The session was deleted: its log takes and shows nothing any more. */
export class SessionDeleted extends DomainError<'session_deleted', { sessionId: string; deletedAt: string }> {
  readonly code = 'session_deleted';
}

/** The place is of an earlier life of the session's id; it was deleted and made again, and counts anew. Read this one from its start. */
export class OtherIncarnation extends DomainError<'other_incarnation', { sessionId: string; incarnation: string }> {
  readonly code = 'other_incarnation';
}

/** A session of this id is there, with another header. */
export class SessionExists extends DomainError<'session_exists', { sessionId: string }> {
  readonly code = 'session_exists';
}

/** A message that has come in already is among events that are new: append it alone, or leave it out. */
export class DuplicateInbound extends DomainError<'duplicate_inbound', { sequence: number }> {
  readonly code = 'duplicate_inbound';
}

/** The log goes on at another sequence: read what is new, and decide again. */
export class SequenceConflict extends DomainError<
  'sequence_conflict',
  { sessionId: string; expectedSequence: number; actualSequence: number }
> {
  readonly code = 'sequence_conflict';
}

/** The append id was used before for other events. */
export class AppendConflict extends DomainError<'append_conflict', { sessionId: string; appendId: string }> {
  readonly code = 'append_conflict';
}

/** An event's time is more than five minutes off the database's: leave it out, or set the clock. */
export class ClockSkew extends DomainError<'clock_skew', { databaseTime: string; skewMsMax: number }> {
  readonly code = 'clock_skew';
}

/** Events of this type are appended with the epoch of the session lease: acquire it first. */
export class LeaseRequired extends DomainError<'lease_required', { sessionId: string; type: string }> {
  readonly code = 'lease_required';
}

/** Another owner holds the session lease: wait for its end, or for its release. */
export class SessionLeased extends DomainError<'session_leased', { sessionId: string; owner: string; leaseRemainingMs: number }> {
  readonly code = 'session_leased';
  override readonly failureKind = 'runner-lease-conflict';
  override readonly retryable = true;
}

/** The session lease of this epoch is no longer in force (`reason`: none held, other epoch, expired or released). Stop writing. */
export class SessionLeaseLost extends DomainError<
  'session_lease_lost',
  { sessionId: string; epoch: number; currentEpoch: number; reason: 'none' | 'other' | 'expired' }
> {
  readonly code = 'session_lease_lost';
  override readonly failureKind = 'runner-lease-conflict';
}

/** The session's storage is being deleted: start the turn when that is over. */
export class StorageEvicting extends DomainError<'storage_evicting', { sessionId: string; leaseRemainingMs: number }> {
  readonly code = 'storage_evicting';
  override readonly retryable = true;
}

/** The session's storage is not, or no longer, what the call names: read the session, and decide again. */
export class StorageChanged extends DomainError<
  'storage_changed',
  { sessionId: string; storageKind: string; storageName: string | null; storageVersion: number }
> {
  readonly code = 'storage_changed';
}

/** The session's active pair does not fit its run and command: tell the operator. */
export class SessionProjectionBroken extends DomainError<'session_projection_broken', { sessionId: string }> {
  readonly code = 'session_projection_broken';
  override readonly failureKind = 'infra-failed';
}

/** There is no open turn that could take a steer; `why`: no-turn, turn-ended, cancelling, runner-lost, no-runner-coming. */
export class NoReceivableTurn extends DomainError<
  'no_receivable_turn',
  { sessionId: string | null; runId: string | null; commandId: string | null; why: NotReceivableReason }
> {
  readonly code = 'no_receivable_turn';
}

/** The dispatch intent is no longer held by this dispatcher. */
export class StaleDispatchClaim extends DomainError<'stale_dispatch_claim', { intentId: string; epoch: number }> {
  readonly code = 'stale_dispatch_claim';
  override readonly failureKind = 'runner-lease-conflict';
}

/** Every place that the key has is taken, by runners or by creations under way: wait in line. */
export class CapacityReached extends DomainError<
  'capacity_reached',
  { key: string; limit: number; live: number; reserved: number; retryInMs: number | null }
> {
  readonly code = 'capacity_reached';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** The place is no longer held under this epoch: it was given back, or its lease has ended. Undo what was done under it. */
export class ReservationLost extends DomainError<'reservation_lost', { key: string; slot: number; epoch: number }> {
  readonly code = 'reservation_lost';
  override readonly failureKind = 'infra-failed';
}

/** Somebody works in the session (`why`: turn-open, run-open, leased): end that first. `remainingMs`: of the lease. */
export class SessionInUse extends DomainError<
  'session_in_use',
  { sessionId: string; why: 'turn-open' | 'run-open' | 'leased'; holder: string | null; remainingMs: number | null }
> {
  readonly code = 'session_in_use';
  override readonly retryable = true;
}

/** The run cannot be removed: it is open, its job is not settled, it is the last of its session, or somebody holds it for a while. */
export class RunInUse extends DomainError<'run_in_use', { runId: string; why: 'open' | 'job-unsettled' | 'shown-by-session' | 'held' }> {
  readonly code = 'run_in_use';
}

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

/** As many inputs wait in the session's inbox as may: repeat the call when some have been taken. */
export class InboxFull extends DomainError<'inbox_full', { sessionId: string; entriesMax: number }> {
  readonly code = 'inbox_full';
  override readonly retryable = true;
}

/** A file does not hold a session: `line` says where, from 1. */
export class InvalidImport extends DomainError<'invalid_import', { line: number; reason: string }> {
  readonly code = 'invalid_import';
}

/** No such queue task for this tenant. */
export class TaskNotFound extends DomainError<'task_not_found', { taskId: string }> {
  readonly code = 'task_not_found';
}

/** The queue task has no such attempt. */
export class AttemptNotFound extends DomainError<'attempt_not_found', { taskId: string; attemptId: string }> {
  readonly code = 'attempt_not_found';
}

/** The queue task is no longer held under this epoch: its lease has ended, or it was taken away. Stop the work. */
export class TaskClaimLost extends DomainError<'task_claim_lost', { taskId: string; epoch: number; currentEpoch: number; state: string }> {
  readonly code = 'task_claim_lost';
  override readonly failureKind = 'runner-lease-conflict';
}

/** The queue task has ended, and this does not bring it back. */
export class TaskClosed extends DomainError<'task_closed', { taskId: string; state: string }> {
  readonly code = 'task_closed';
}

/** Somebody holds the queue task under a lease: name the epoch, or wait. */
export class TaskHeld extends DomainError<'task_held', { taskId: string; holder: string | null; leaseRemainingMs: number | null }> {
  readonly code = 'task_held';
}

/** The queue task has changed since the version that the call names: read it again. */
export class TaskVersionConflict extends DomainError<'task_version_conflict', { taskId: string; expected: number; version: number }> {
  readonly code = 'task_version_conflict';
}

/** The queue task lacks what a run needs, or its state starts none. It is for workers that claim it. */
export class TaskNotRunnable extends DomainError<'task_not_runnable', { taskId: string; state: string; missing: readonly string[] }> {
  readonly code = 'task_not_runnable';
}

/** Only failed and blocked queue tasks are retried, and only while no attempt is under way. */
export class TaskNotRetryable extends DomainError<'task_not_retryable', { taskId: string; state: string; activeAttemptId: string | null }> {
  readonly code = 'task_not_retryable';
}

/** Another retry of the queue task is reserved: wait until it is activated, fails, or its time is over. */
export class RetryReserved extends DomainError<'retry_reserved', { taskId: string; attemptId: string; remainingMs: number }> {
  readonly code = 'retry_reserved';
}

/** The reservation's time is over: ask for it again with its key, unless another retry has come. */
export class RetryReservationExpired extends DomainError<'retry_reservation_expired', { taskId: string; attemptId: string }> {
  readonly code = 'retry_reservation_expired';
}

/** The attempt has ended, or cannot go to the state that was asked for. */
export class AttemptTransitionRefused extends DomainError<
  'attempt_transition_refused',
  { taskId: string; attemptId: string; from: string; to: string }
> {
  readonly code = 'attempt_transition_refused';
}

/** As many tasks of the lane, or of its queue, run as may run at a time. */
export class LaneFull extends DomainError<'lane_full', { queue: string; lane: string; maxRunning: number }> {
  readonly code = 'lane_full';
  override readonly retryable = true;
}

/** Somebody else is rebuilding the views of the session, or has taken it over: wait for it, GET …/rebuild tells how far it is. */
export class RebuildRunning extends DomainError<'rebuild_running', { sessionId: string }> {
  readonly code = 'rebuild_running';
  override readonly retryable = true;
}

/** The cursor belongs to another store or lies below the retention floor: go on from oldestCursor. */
export class CursorExpired extends DomainError<'cursor_expired', { oldestCursor: string; reason: 'other-store' | 'below-retention' }> {
  readonly code = 'cursor_expired';
}

/** The store knows no such sink: a relay makes it when it first serves it. */
export class SinkNotFound extends DomainError<'sink_not_found', { sink: string }> {
  readonly code = 'sink_not_found';
}

/** Nobody relays to a disabled sink; enable it first. */
export class SinkDisabled extends DomainError<'sink_disabled', { sink: string }> {
  readonly code = 'sink_disabled';
}

/** The sink has no such blocked key: its events go through, or there are none. */
export class BlockedKeyNotFound extends DomainError<'blocked_key_not_found', { sink: string; key: string }> {
  readonly code = 'blocked_key_not_found';
}

/** The key is no longer blocked at the event that the call names: read the list again. */
export class BlockedKeyMoved extends DomainError<'blocked_key_moved', { sink: string; key: string; cursor: string | null }> {
  readonly code = 'blocked_key_moved';
}

/** A range is being sent to the sink again already: wait for its end, or disable the sink. */
export class RepublishRunning extends DomainError<'republish_running', { sink: string; shards: number }> {
  readonly code = 'republish_running';
}

/** No consumer of the feed is registered under this name. */
export class FeedConsumerNotFound extends DomainError<'feed_consumer_not_found', { name: string }> {
  readonly code = 'feed_consumer_not_found';
}

/** The consumer stands elsewhere than the commit says: another process has committed, or an operator has rewound it. Go on from cursor. */
export class FeedConsumerMoved extends DomainError<'feed_consumer_moved', { name: string; cursor: string }> {
  readonly code = 'feed_consumer_moved';
}

/** The tenant has as many registered consumers as it may: delete one that nobody uses. */
export class FeedConsumersFull extends DomainError<'feed_consumers_full', { consumersMax: number }> {
  readonly code = 'feed_consumers_full';
}

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

/** The run belongs to no session, and only a session can ask people. */
export class SessionRequired extends DomainError<'session_required', { runId: string }> {
  readonly code = 'session_required';
}

/** The session's open turn is not this run's, and only the run of the open turn can ask people. */
export class RunNotActive extends DomainError<'run_not_active', { runId: string; sessionId: string; activeRunId: string | null }> {
  readonly code = 'run_not_active';
}

/** joinTransaction needs an open transaction: BEGIN first. */
export class NotInTransaction extends DomainError<'not_in_transaction', Record<string, never>> {
  readonly code = 'not_in_transaction';
  constructor(message = 'joinTransaction needs an open transaction: BEGIN first.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** joinTransaction needs READ COMMITTED. */
export class WrongIsolation extends DomainError<'wrong_isolation', { isolation: string }> {
  readonly code = 'wrong_isolation';
}

/** A row stayed locked by another transaction for too long: repeat the call. */
export class LockTimeout extends DomainError<'lock_timeout', Record<string, never>> {
  readonly code = 'lock_timeout';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'A row stayed locked by another transaction for too long: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** No database connection became free in time: repeat the call. */
export class PoolTimeout extends DomainError<'pool_timeout', Record<string, never>> {
  readonly code = 'pool_timeout';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'No database connection became free in time: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** Concurrent transactions stood in each other's way: repeat the call. */
export class TransactionConflict extends DomainError<'transaction_conflict', { attempts: number }> {
  readonly code = 'transaction_conflict';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** The database did not answer; nothing was written: repeat the call. */
export class DatabaseUnavailable extends DomainError<'database_unavailable', Record<string, never>> {
  readonly code = 'database_unavailable';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'The database did not answer; nothing was written: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** The connection broke while the write was being committed: repeat the call with the same key or producer sequence. */
export class OutcomeUnknown extends DomainError<'outcome_unknown', Record<string, never>> {
  readonly code = 'outcome_unknown';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(
    message = 'The connection broke while the write was being committed: repeat the call with the same key or producer sequence.',
    options?: ErrorOptions,
  ) {
    super(message, {}, options);
  }
}

/** This process serves as many waiting requests as it may: repeat the call. */
export class Overloaded extends DomainError<'overloaded', { waitersMax: number }> {
  readonly code = 'overloaded';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** More calls wait for the database than this process may hold; this one was not begun: repeat it. */
export class BacklogFull extends DomainError<'backlog_full', { callsMax: number; bytesMax: number }> {
  readonly code = 'backlog_full';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** This process is shutting down: repeat the call. */
export class ShuttingDown extends DomainError<'shutting_down', Record<string, never>> {
  readonly code = 'shutting_down';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'This process is shutting down: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

export type RunplaneError =
  | InvalidRequest
  | InvalidJson
  | PayloadTooLarge
  | InvalidIdentifier
  | InvalidCursor
  | IdempotencyKeyRequired
  | ReservedEventType
  | CommandNotOfRun
  | Unauthenticated
  | Forbidden
  | TenantNotFound
  | RunNotFound
  | RunDeleted
  | EventsPruned
  | ArchiveNotFound
  | ArchiveDamaged
  | CommandNotFound
  | IntentNotFound
  | SessionNotFound
  | RunnerNotFound
  | RunnerJobNotFound
  | BackendNotFound
  | ApiKeyNotFound
  | RouteNotFound
  | NoteNotFound
  | IdempotencyConflict
  | RunClosed
  | RunCancelling
  | RunClaimed
  | LeaseLost
  | LeaseExpired
  | ProducerGap
  | ProducerConflict
  | TooManyOpenToolCalls
  | CommandClosed
  | NoCancelRequested
  | SessionBusy
  | SessionBoundary
  | SessionExists
  | SequenceConflict
  | DuplicateInbound
  | AppendConflict
  | ClockSkew
  | LeaseRequired
  | SessionLeased
  | SessionLeaseLost
  | StorageEvicting
  | StorageChanged
  | SessionProjectionBroken
  | NoReceivableTurn
  | StaleDispatchClaim
  | CapacityReached
  | ReservationLost
  | SessionDeleted
  | OtherIncarnation
  | SessionInUse
  | RunInUse
  | SubmissionNotFound
  | SubmissionExists
  | SubmissionClosed
  | RevisionConflict
  | ClaimLost
  | SubmissionQueueFull
  | InboxFull
  | InvalidImport
  | TaskNotFound
  | AttemptNotFound
  | TaskClaimLost
  | TaskClosed
  | TaskHeld
  | TaskVersionConflict
  | TaskNotRunnable
  | TaskNotRetryable
  | RetryReserved
  | RetryReservationExpired
  | AttemptTransitionRefused
  | LaneFull
  | RebuildRunning
  | CursorExpired
  | SinkNotFound
  | SinkDisabled
  | BlockedKeyNotFound
  | BlockedKeyMoved
  | RepublishRunning
  | FeedConsumerNotFound
  | FeedConsumerMoved
  | FeedConsumersFull
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
  | TooManyOpenRequests
  | SessionRequired
  | RunNotActive
  | NotInTransaction
  | WrongIsolation
  | LockTimeout
  | PoolTimeout
  | TransactionConflict
  | DatabaseUnavailable
  | OutcomeUnknown
  | Overloaded
  | BacklogFull
  | ShuttingDown;
export type ErrorCode = RunplaneError['code'];
