import { CLAIM_BATCH_ROWS_MAX, DISPATCH_LEASE_MS, freeText, StaleDispatchClaim, type DispatchOutcome } from '@runplane/contracts';
import { emptySql, inTransaction, requireTenant, sql, type Db, type Tx } from '@runplane/database';
import { claimDeadlineSet } from './create-command';
import { closeRun } from './close-run';
import {
  claimDueIntents,
  listExhaustedIntents,
  writeExhaustedIntentFailed,
  writeIntentDispatched,
  writeIntentFailed,
  writeIntentRetry,
  writeIntentWaiting,
  type IntentClaim,
  type IntentRow,
} from './dispatch-intent.sql';
import { lockCommand } from './command.sql';
import type { LaunchResult } from './launcher';
import { requireLockedRun } from './require';
import { appendServerEvents, phase } from './run-event.sql';
import { lockRunLease } from './run-lease.sql';
import { writeClaimDeadline, type RunRow } from './run.sql';
import { upsertRunnerJob } from './runner-job.sql';

// Working off dispatch intents: claim, then launch outside any transaction, then settle under the claim's epoch. An intent whose run or
// command ends meanwhile is cancelled by that ending, which takes the claim away: a settle finds it gone and changes nothing.

/**
 * Claims due intents for a dispatcher: waiting ones, and those whose last dispatcher's lease has ended. The attempt is counted now.
 * Locks: none that waits (SKIP LOCKED).
 */
export function claimDispatchIntents(
  db: Db,
  { owner, limit = 10, leaseMs = DISPATCH_LEASE_MS }: { owner: string; limit?: number | undefined; leaseMs?: number | undefined },
): Promise<IntentRow[]> {
  return claimDueIntents(db.sql, { owner, leaseMs, limit: Math.min(Math.max(limit, 1), CLAIM_BATCH_ROWS_MAX) });
}

export interface DispatchCompletion {
  readonly outcome: DispatchOutcome;
  readonly activeRunnerId?: string | undefined;
  /** The job that was made or found; absent where a runner was active already. */
  readonly job?: (Pick<LaunchResult, 'jobName' | 'result' | 'place'> & { readonly launcher: string }) | undefined;
}

/**
 * Records that a runner has been launched for an intent.
 * Locks     run → intent → runner job.   Writes: dispatch_intents, runner_jobs, runs, run_events, outbox.
 * Errors    StaleDispatchClaim: the claim is over, or the run or command has ended.
 * Emits     runner-dispatch-completed.
 */
export async function completeDispatchIntent(
  tx: Tx,
  claim: IntentClaim & { runnerJobId: string },
  { outcome, activeRunnerId, job }: DispatchCompletion,
): Promise<void> {
  await requireLockedRun(tx, claim);
  const runnerJobId = job === undefined ? null : claim.runnerJobId;
  assertHeld(await writeIntentDispatched(tx, claim, { outcome, runnerJobId, activeRunnerId: activeRunnerId ?? null }), claim);
  if (job !== undefined) await upsertRunnerJob(tx, { ...claim, jobId: claim.runnerJobId, ...job });
  const completed = phase('runner-dispatch-completed', {
    commandId: claim.commandId,
    dispatchIntentId: claim.intentId,
    outcome,
    runnerJobId,
    activeRunnerId: activeRunnerId ?? null,
    jobName: job?.jobName ?? null,
  });
  await appendServerEvents(tx, claim, [completed], job === undefined ? emptySql : sql`, launched_at = runplane.app_now()`);
}

/**
 * Gives an intent back after a launch that failed, due after a delay.
 * Locks     run → intent.   Errors: StaleDispatchClaim.   Emits: runner-dispatch-retry.
 */
export async function retryDispatchIntent(
  tx: Tx,
  claim: IntentClaim & { attempts: number },
  { error, delayMs }: { error: string; delayMs: number },
): Promise<void> {
  await requireLockedRun(tx, claim);
  const message = freeText(error);
  assertHeld(await writeIntentRetry(tx, claim, { delayMs, lastError: message }), claim);
  await appendServerEvents(tx, claim, [
    phase('runner-dispatch-retry', {
      commandId: claim.commandId,
      dispatchIntentId: claim.intentId,
      attempts: claim.attempts,
      retryInMs: delayMs,
      message,
    }),
  ]);
  tx.changed('dispatch');
}

/**
 * Gives an intent back that could not be launched because its backend has no place free. It waits in line: the attempt does not count, the
 * run's claim deadline starts anew, and it comes again after as long as it has waited, within 1 to 15 s. Who gets the next place is not decided by
 * how long it has waited.
 * Locks     run → intent.   Errors: StaleDispatchClaim.   Emits: runner-dispatch-waiting, once per wait.
 */
export async function deferDispatchIntent(
  tx: Tx,
  claim: IntentClaim & { lastError: string | null },
  { limit, live, reserved }: { limit: number; live: number; reserved: number },
): Promise<void> {
  const run = await requireLockedRun(tx, claim);
  assertHeld(await writeIntentWaiting(tx, claim, { lastError: WAITS_FOR_CAPACITY, spread: Math.random() }), claim);
  const waiting = phase('runner-dispatch-waiting', {
    commandId: claim.commandId,
    dispatchIntentId: claim.intentId,
    reason: 'capacity_reached',
    backendProfile: run.backendProfile,
    limit,
    live,
    reserved,
  });
  const isNew = claim.lastError !== WAITS_FOR_CAPACITY;
  const { settings } = await requireTenant(tx, claim.tenantId);
  const deadline = run.status === 'pending' ? claimDeadlineSet(settings.claimDeadlineMs) : emptySql;
  if (isNew) await appendServerEvents(tx, claim, [waiting], deadline);
  else if (run.status === 'pending') await writeClaimDeadline(tx, claim, settings.claimDeadlineMs);
}

/** Stands in `lastError` of an intent that waits for a place. */
export const WAITS_FOR_CAPACITY = 'capacity_reached: every place of the backend is taken';

export interface DispatchFailure {
  readonly failureKind: string;
  readonly message: string;
  readonly attempts: number;
}

/**
 * Ends an intent as failed, and with it a run that still waits for a runner: nobody will ever work on it.
 * Locks     run → run lease → command → intent → session (closeRun).   Errors: StaleDispatchClaim.
 * Emits     runner-dispatch-failed and the run's ending.
 */
export async function terminalizeDispatchIntent(tx: Tx, claim: IntentClaim, failure: DispatchFailure): Promise<void> {
  const run = await lockForFailure(tx, claim);
  assertHeld(await writeIntentFailed(tx, claim, freeText(failure.message)), claim);
  await endUndispatchedRun(tx, run, claim, failure);
}

/**
 * Ends intents whose last allowed attempt died with its dispatcher (kill -9 between claim and settle). A transaction per intent.
 * Returns how many were ended.
 */
export async function failExhaustedIntentsOnce(db: Db, { limit = 50 }: { limit?: number } = {}): Promise<{ changed: number }> {
  const exhausted = await listExhaustedIntents(db.sql, limit);
  let changed = 0;
  for (const { tenantId, runId, commandId, id: intentId, attempts, owner, epoch, lastError } of exhausted) {
    const ended = await inTransaction(db, async (tx) => {
      const claim = { tenantId, runId, commandId, intentId, owner: owner ?? '', epoch };
      const run = await lockForFailure(tx, claim);
      const message = lastError ?? 'every attempt to launch a runner died with its dispatcher';
      if (!(await writeExhaustedIntentFailed(tx, claim, intentId, message))) return false;
      await endUndispatchedRun(tx, run, claim, { failureKind: 'infra-failed', message, attempts });
      return true;
    });
    if (ended) changed += 1;
  }
  return { changed };
}

async function lockForFailure(tx: Tx, claim: IntentClaim): Promise<RunRow> {
  const run = await requireLockedRun(tx, claim);
  await lockRunLease(tx, claim);
  await lockCommand(tx, claim, claim.commandId);
  return run;
}

/** A run that a runner has claimed meanwhile, from whatever hand, goes on: its lease says when it is lost. */
async function endUndispatchedRun(
  tx: Tx,
  run: RunRow,
  { commandId, intentId }: IntentClaim,
  { failureKind, message, attempts }: DispatchFailure,
): Promise<void> {
  const facts = {
    reason: 'runner-dispatch-failed',
    commandId,
    dispatchIntentId: intentId,
    attempts,
    failureKind,
    message: freeText(message),
  };
  const told = phase('runner-dispatch-failed', facts);
  if (run.status !== 'pending') await appendServerEvents(tx, { tenantId: run.tenantId, runId: run.id }, [told]);
  else
    await closeRun(tx, run, { status: 'failed', failureKind, failureMessage: message, reason: 'runner-dispatch-failed', before: [told] });
}

function assertHeld(held: boolean, { intentId, epoch }: IntentClaim): void {
  if (!held) throw new StaleDispatchClaim(`Dispatch intent ${intentId} is no longer held under epoch ${epoch}.`, { intentId, epoch });
}
