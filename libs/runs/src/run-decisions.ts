import {
  isFinalCommand,
  isFinalRun,
  isOpenIntent,
  type BusyPolicy,
  type CommandState,
  type NotReceivableReason,
  type RunnerLostPolicy,
  type RunState,
  type TerminalStatus,
} from '@runplane/contracts';
import { isLive } from '@runplane/database';
import type { Launch } from './dispatch-intent.sql';

// What is done with a run, decided from rows that are locked and from nothing else: no clock, no statement. Tables of cases: run-decisions.spec.ts.

/** The parts of a locked run that decisions look at. */
export interface RunFacts {
  readonly status: RunState;
  readonly claimEpoch: number;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly onRunnerLost: RunnerLostPolicy;
  readonly failureKind: string | null;
  readonly claimDeadlineInMs: number | null;
  readonly cancelDeadlineInMs: number | null;
  readonly durationDeadlineInMs: number | null;
}

/** The end of the claim's lease, by the database's clock after the lock; null where no lease row exists. */
export type LeaseFacts = { readonly expiresInMs: number } | undefined;

const holds = (lease: LeaseFacts): boolean => lease !== undefined && isLive(lease.expiresInMs);

export type WriterDecision = { kind: 'write' } | { kind: 'closed' } | { kind: 'lease-lost' };

/**
 * May the holder of `epoch` still write? Judged by epoch and state alone: a runner that is late, but neither replaced nor closed, is
 * accepted (OWN-2). `closed` says that it held the run last, so that an identical repeat can be answered.
 */
export function decideWriter(run: RunFacts, epoch: number): WriterDecision {
  if (epoch !== run.claimEpoch) return { kind: 'lease-lost' };
  if (isFinalRun(run.status)) return { kind: 'closed' };
  return run.status === 'claimed' || run.status === 'cancelling' ? { kind: 'write' } : { kind: 'lease-lost' };
}

export interface OutcomeFacts {
  readonly terminalStatus: TerminalStatus;
  readonly failureKind?: string | null | undefined;
}

/** What an outcome leaves as failure kind: a cancelled run or command always has one, by the cancel where that says which. */
export function failureKindOf({ terminalStatus, failureKind }: OutcomeFacts, cancelFailureKind: string | null = null): string | null {
  if (terminalStatus === 'completed') return null;
  return failureKind ?? (terminalStatus === 'cancelled' ? (cancelFailureKind ?? 'cancelled') : 'backend-failed');
}

export type FinishDecision = { kind: 'close' } | { kind: 'replay' } | { kind: 'closed' } | { kind: 'lease-lost' };

/** A repeated finish with the stored outcome is answered with it; another outcome of an ended run is refused. */
export function decideFinish(
  run: RunFacts & { readonly cancelFailureKind: string | null },
  epoch: number,
  outcome: OutcomeFacts,
): FinishDecision {
  const writer = decideWriter(run, epoch);
  if (writer.kind === 'write') return { kind: 'close' };
  if (writer.kind === 'lease-lost') return writer;
  const same = run.status === outcome.terminalStatus && run.failureKind === failureKindOf(outcome, run.cancelFailureKind);
  return { kind: same ? 'replay' : 'closed' };
}

export type CancelDecision =
  /** Ended already, or asked already. */
  | { kind: 'keep' }
  /** Nobody works on it, or nobody shall be waited for: end it now. `fenced`: a holder is cut off. */
  | { kind: 'close'; fenced: boolean }
  /** The holder learns of it and may stop in its own way, until the deadline. */
  | { kind: 'request' };

export function decideCancel(run: RunFacts, lease: LeaseFacts, { immediate }: { immediate: boolean }): CancelDecision {
  if (isFinalRun(run.status)) return { kind: 'keep' };
  if (run.status === 'pending') return { kind: 'close', fenced: false };
  if (immediate || !holds(lease)) return { kind: 'close', fenced: true };
  return run.status === 'cancelling' ? { kind: 'keep' } : { kind: 'request' };
}

export type LostRunnerDecision =
  { kind: 'keep' } | { kind: 'finish-cancel' } | { kind: 'timeout' } | { kind: 'requeue' } | { kind: 'fail' };

/** What becomes of a run whose lease has ended. A cancel that was asked for comes first, then the end of its duration; then the run's policy, within its attempts. */
export function decideLostRunner(run: RunFacts, lease: LeaseFacts): LostRunnerDecision {
  if ((run.status !== 'claimed' && run.status !== 'cancelling') || holds(lease)) return { kind: 'keep' };
  if (run.status === 'cancelling') return { kind: 'finish-cancel' };
  if (isDurationOver(run)) return { kind: 'timeout' };
  return { kind: run.onRunnerLost === 'requeue' && run.attempts < run.maxAttempts ? 'requeue' : 'fail' };
}

export type LostLaunchDecision = { kind: 'keep' } | { kind: 'requeue' | 'fail'; launch: Launch };

/**
 * What becomes of a run whose launched job is gone before anybody claimed it. Only the newest job of a command counts, and only when no
 * other launch may still bring a runner. The launch counts as an attempt.
 */
export function decideLostLaunch(run: RunFacts, launches: readonly Launch[], jobId: string): LostLaunchDecision {
  const launch = launches.find((each) => each.state === 'dispatched' && each.jobId === jobId);
  if (run.status !== 'pending' || launch === undefined) return { kind: 'keep' };
  const mayCome = (each: Launch): boolean =>
    isOpenIntent(each.state) || (each.state === 'dispatched' && each.jobId !== null && !each.isLost);
  if (launches.some((each) => each !== launch && mayCome(each))) return { kind: 'keep' };
  return { kind: run.onRunnerLost === 'requeue' && run.attempts + 1 < run.maxAttempts ? 'requeue' : 'fail', launch };
}

/** True when a cancel's deadline has passed and the holder has not ended the run. */
export function isCancelOverdue(run: RunFacts): boolean {
  return run.status === 'cancelling' && run.cancelDeadlineInMs !== null && !isLive(run.cancelDeadlineInMs);
}

/** True when a run has used up its time and nobody has asked it to stop. */
export function isDurationOver(run: RunFacts): boolean {
  const isOpen = run.status === 'pending' || run.status === 'claimed';
  return isOpen && run.durationDeadlineInMs !== null && !isLive(run.durationDeadlineInMs);
}

/** True when a dispatched run should have been claimed by now and was not. */
export function isClaimOverdue(run: RunFacts): boolean {
  return run.status === 'pending' && run.claimDeadlineInMs !== null && !isLive(run.claimDeadlineInMs);
}

export type Staleness =
  /** `staleInMs`: when a takeover becomes possible if nothing happens until then; null: not by itself. */
  { kind: 'live'; staleInMs: number | null } | { kind: 'stale'; why: 'lease-ended' | 'never-claimed' | 'dispatch-ended' };

/**
 * May a new turn take the session over from its open one? Only when nobody works on that turn and nobody will: its lease has ended, its
 * claim deadline has passed, or its dispatch has ended without a runner. A turn that waits for a runner of its own has no deadline, since
 * such a runner may be long in coming; but after `waitLeftMs` it may not keep a user's next turn out any longer.
 */
export function decideStaleness(run: RunFacts, lease: LeaseFacts, intentState: string | undefined, waitLeftMs: number | null): Staleness {
  if (run.status === 'claimed' || run.status === 'cancelling') {
    return holds(lease) ? { kind: 'live', staleInMs: lease?.expiresInMs ?? null } : { kind: 'stale', why: 'lease-ended' };
  }
  if (isClaimOverdue(run)) return { kind: 'stale', why: 'never-claimed' };
  if (intentState === 'failed' || intentState === 'cancelled') return { kind: 'stale', why: 'dispatch-ended' };
  const isUndispatched = intentState === undefined && run.claimDeadlineInMs === null;
  if (isUndispatched && waitLeftMs !== null && waitLeftMs <= 0) return { kind: 'stale', why: 'never-claimed' };
  return { kind: 'live', staleInMs: isUndispatched ? waitLeftMs : run.claimDeadlineInMs };
}

export type BusyDecision =
  /** Nobody works on the open turn: it ends, and the new one is admitted. */
  | { kind: 'take-over'; why: Extract<Staleness, { kind: 'stale' }>['why'] }
  | { kind: 'busy'; staleInMs: number | null }
  /** Wait behind it. */
  | { kind: 'enqueue'; staleInMs: number | null }
  /** Ask for the cancel of its run, or find it asked for. */
  | { kind: 'interrupt' }
  /** The time of a requested cancel is over: cut the holder off now, the sweeper may come later. */
  | { kind: 'end-cancel' }
  | { kind: 'steer' };

/** What a new turn does with the open one of its session. A stale one is taken over under every policy: the session only looks busy. */
export function decideBusy(
  policy: BusyPolicy,
  run: RunFacts,
  lease: LeaseFacts,
  intentState: string | undefined,
  waitLeftMs: number | null,
): BusyDecision {
  const staleness = decideStaleness(run, lease, intentState, waitLeftMs);
  if (staleness.kind === 'stale') return { kind: 'take-over', why: staleness.why };
  switch (policy) {
    case 'reject':
      return { kind: 'busy', staleInMs: staleness.staleInMs };
    case 'enqueue':
      return { kind: 'enqueue', staleInMs: staleness.staleInMs };
    case 'interrupt':
      return { kind: isCancelOverdue(run) ? 'end-cancel' : 'interrupt' };
    case 'steer':
      return { kind: 'steer' };
  }
}

/** The parts of a locked turn that a steer looks at. */
export interface TurnFacts {
  readonly state: CommandState;
  readonly cancelRequestId: string | null;
}

export type SteerDecision = { kind: 'receive' } | { kind: 'refuse'; why: NotReceivableReason };

/**
 * Can the open turn take a steer? Only one that goes on, and that a runner has, or is about to have: a steer for any other would wait for
 * its end to be missed.
 */
export function decideSteer(run: RunFacts, lease: LeaseFacts, turn: TurnFacts, intentState: string | undefined): SteerDecision {
  const refuse = (why: NotReceivableReason): SteerDecision => ({ kind: 'refuse', why });
  if (isFinalRun(run.status) || isFinalCommand(turn.state)) return refuse('turn-ended');
  if (run.status === 'cancelling' || turn.cancelRequestId !== null) return refuse('cancelling');
  if (run.status === 'claimed') return holds(lease) ? { kind: 'receive' } : refuse('runner-lost');
  const isComing = intentState !== undefined && intentState !== 'failed' && intentState !== 'cancelled' && !isClaimOverdue(run);
  return isComing ? { kind: 'receive' } : refuse('no-runner-coming');
}
