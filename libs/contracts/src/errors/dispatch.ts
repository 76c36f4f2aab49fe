import { DomainError } from '../domain-error';

// Runners, their jobs, and the room for them.

/** The command has no dispatch intent. */
export class IntentNotFound extends DomainError<'intent_not_found', { commandId: string }> {
  readonly code = 'intent_not_found';
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

export type DispatchError =
  IntentNotFound | RunnerNotFound | BackendNotFound | RunnerJobNotFound | StaleDispatchClaim | CapacityReached | ReservationLost;
