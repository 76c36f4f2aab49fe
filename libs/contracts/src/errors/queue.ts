import { DomainError } from '../domain-error';

// Queue tasks, their attempts and lanes.

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

export type QueueError =
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
  | LaneFull;
