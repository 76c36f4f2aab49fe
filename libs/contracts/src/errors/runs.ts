import { DomainError } from '../domain-error';
import type { NotReceivableReason } from '../states';

// Runs, their commands, claims and events.

/** An event names a command that does not belong to its run. */
export class CommandNotOfRun extends DomainError<'command_not_of_run', { commandId: string }> {
  readonly code = 'command_not_of_run';
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

/** There is no open turn that could take a steer; `why`: no-turn, turn-ended, cancelling, runner-lost, no-runner-coming. */
export class NoReceivableTurn extends DomainError<
  'no_receivable_turn',
  { sessionId: string | null; runId: string | null; commandId: string | null; why: NotReceivableReason }
> {
  readonly code = 'no_receivable_turn';
}

/** The run cannot be removed: it is open, its job is not settled, it is the last of its session, or somebody holds it for a while. */
export class RunInUse extends DomainError<'run_in_use', { runId: string; why: 'open' | 'job-unsettled' | 'shown-by-session' | 'held' }> {
  readonly code = 'run_in_use';
}

/** The run belongs to no session, and only a session can ask people. */
export class SessionRequired extends DomainError<'session_required', { runId: string }> {
  readonly code = 'session_required';
}

/** The session's open turn is not this run's, and only the run of the open turn can ask people. */
export class RunNotActive extends DomainError<'run_not_active', { runId: string; sessionId: string; activeRunId: string | null }> {
  readonly code = 'run_not_active';
}

export type RunError =
  | CommandNotOfRun
  | RunNotFound
  | RunDeleted
  | EventsPruned
  | ArchiveNotFound
  | ArchiveDamaged
  | CommandNotFound
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
  | NoReceivableTurn
  | RunInUse
  | SessionRequired
  | RunNotActive;
