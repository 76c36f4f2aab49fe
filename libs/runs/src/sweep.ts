import { freeText, isFinalCommand } from '@runplane/contracts';
import { inTransaction, isLive, sql, type Db, type Tx } from '@runplane/database';
import { endCancelledCommand } from './cancel-command';
import { cancelLockedRun, endCancelledRun } from './cancel-run';
import { closeRun } from './close-run';
import { listOverdueCommandCancels, lockCommand, lockOpenCommands, type CommandRow } from './command.sql';
import { hasIntents } from './dispatch-intent.sql';
import { lastDispatched, requeueRun } from './requeue-run';
import { appendServerEvents, type ServerEvent } from './run-event.sql';
import { deleteRunLease, listEndedLeases, lockRunLease } from './run-lease.sql';
import { decideLostRunner, isCancelOverdue, isClaimOverdue, isDurationOver, type LeaseFacts } from './run-decisions';
import { listOverdueRunCancels, listOverdueRuns, listUnclaimedRuns, lockRun, type RunKey, type RunRow } from './run.sql';
import { claimLostEvent } from './server-events';

// Sweepers: what time does to runs that nobody ends. Each is one bounded, stateless pass: a look without locks finds candidates, then one
// transaction per run locks it, looks again and decides; a candidate that was saved meanwhile is left alone, one that fails does not hide
// the others, and what was not moved is found by the next pass. Two passes at once do each thing once.

const ROWS_MAX = 100;

export interface Sweep {
  readonly changed: number;
  /** Candidates whose transaction failed; the next pass finds them again. */
  readonly failed: number;
}

/**
 * Runs whose runner's lease has ended: a requested cancel is completed, one whose time is over is ended as timeout; otherwise by the run's
 * policy requeued, within its attempts, or failed as runner-lost. A run with nothing left to give to another runner ends in any case: it would wait for ever.
 * Locks     run → run lease → commands → intents → session.   Emits: claim-lost, run-requeued, or the ending's events.
 */
export async function sweepLostRunnersOnce(db: Db, { limit = ROWS_MAX }: { limit?: number } = {}): Promise<Sweep> {
  const candidates = await listEndedLeases(db.sql, limit);
  return eachAlone(db, candidates, async (tx, key) => {
    const run = await lockRun(tx, key);
    if (run === undefined) return false;
    const lease = await lockRunLease(tx, key);
    const decision = decideLostRunner(run, lease);
    const lost = claimLostEvent({ runnerId: run.claimedBy, epoch: run.claimEpoch, reason: 'lease-ended' });
    switch (decision.kind) {
      case 'keep':
        return false;
      case 'finish-cancel':
        await endCancelledRun(tx, run, { fenced: true, reason: 'runner-lost', before: [lost] });
        return true;
      case 'timeout':
        await cancelOverdue(tx, run, lease, [lost]);
        return true;
      case 'requeue':
        await requeue(tx, run, lost);
        return true;
      case 'fail':
        await appendServerEvents(tx, key, [lost]);
        await endCancelledCommands(tx, run);
        await failLost(tx, run);
        return true;
    }
  });
}

function failLost(tx: Tx, run: RunRow): Promise<void> {
  const failureMessage = `the runner ${run.claimedBy ?? ''} stopped renewing its lease`;
  return closeRun(tx, run, { status: 'failed', failureKind: 'runner-lost', failureMessage, reason: 'runner-lost' });
}

/**
 * Gives a run back to the dispatcher. The epoch grows now, so that the lost runner is fenced before the next claim (OWN-1). Commands whose
 * cancel was requested end here; a dispatched run that has no dispatched command left is failed.
 */
async function requeue(tx: Tx, run: RunRow, lost: ServerEvent): Promise<void> {
  const key = { tenantId: run.tenantId, runId: run.id };
  await appendServerEvents(tx, key, [lost]);
  const commands = await endCancelledCommands(tx, run);
  await deleteRunLease(tx, key);
  const dispatched = await lastDispatched(tx, key, commands);
  if (dispatched === undefined && (await hasIntents(tx, key))) return failLost(tx, run);
  await requeueRun(tx, run, {
    dispatched,
    reason: 'runner-lost',
    set: sql`, status = 'pending', claimed_by = NULL, claim_epoch = claim_epoch + 1, last_producer_seq = 0`,
  });
}

/** Ends the commands that were to be cancelled, as their runner's end does; a turn takes its steers along. Returns what is still open. */
async function endCancelledCommands(tx: Tx, run: RunRow): Promise<CommandRow[]> {
  for (;;) {
    const open = await lockOpenCommands(tx, { tenantId: run.tenantId, runId: run.id });
    const cancelled = open.find((command) => command.cancelRequestId !== null);
    if (cancelled === undefined) return open;
    await endCancelledCommand(tx, run, cancelled, { fenced: true, reason: 'runner-lost' });
  }
}

/** Runs and commands whose cancel is overdue: the holder is fenced and they end. Locks and emits: as their endings. */
export async function sweepCancelDeadlinesOnce(db: Db, { limit = ROWS_MAX }: { limit?: number } = {}): Promise<Sweep> {
  const runs = await eachAlone(db, await listOverdueRunCancels(db.sql, limit), async (tx, key) => {
    const run = await lockRun(tx, key);
    if (run === undefined || !isCancelOverdue(run)) return false;
    await endCancelledRun(tx, run, { fenced: true, reason: 'cancel-deadline' });
    return true;
  });
  const commands = await eachAlone(db, await listOverdueCommandCancels(db.sql, limit), async (tx, key) => {
    const run = await lockRun(tx, key);
    if (run === undefined) return false;
    await lockRunLease(tx, key);
    const command = await lockCommand(tx, key, key.commandId);
    const overdue = command?.cancelDeadlineInMs != null && !isLive(command.cancelDeadlineInMs);
    if (command === undefined || !overdue || isFinalCommand(command.state)) return false;
    await endCancelledCommand(tx, run, command, { fenced: true, reason: 'cancel-deadline' });
    return true;
  });
  return { changed: runs.changed + commands.changed, failed: runs.failed + commands.failed };
}

/**
 * Runs that have used up their time, whether their runner heartbeats or not: the server asks them to stop, as a caller would, with the
 * tenant's grace. Of a run that is past its duration and has lost its runner too, this end wins. Locks and emits: as cancelRun.
 */
export async function cancelOverdueRunsOnce(db: Db, { limit = ROWS_MAX }: { limit?: number } = {}): Promise<Sweep> {
  return eachAlone(db, await listOverdueRuns(db.sql, limit), async (tx, key) => {
    const run = await lockRun(tx, key);
    if (run === undefined || !isDurationOver(run)) return false;
    await cancelOverdue(tx, run, await lockRunLease(tx, key), []);
    return true;
  });
}

async function cancelOverdue(tx: Tx, run: RunRow, lease: LeaseFacts, before: readonly ServerEvent[]): Promise<void> {
  const target = { kind: 'run', id: run.id } as const;
  await cancelLockedRun(tx, run, lease, { target, reason: 'timeout', failureKind: 'timeout', word: 'duration-deadline', before });
}

/** Dispatched runs that no runner has claimed by their deadline: the program never started. Locks and emits: as closeRun. */
export async function failUnclaimedRunsOnce(db: Db, { limit = ROWS_MAX }: { limit?: number } = {}): Promise<Sweep> {
  return eachAlone(db, await listUnclaimedRuns(db.sql, limit), async (tx, key) => {
    const run = await lockRun(tx, key);
    if (run === undefined || !isClaimOverdue(run)) return false;
    await closeRun(tx, run, {
      status: 'failed',
      failureKind: 'infra-failed',
      failureMessage: freeText('no runner claimed the run by its deadline'),
      reason: 'claim-deadline',
    });
    return true;
  });
}

/** One transaction per candidate, one after another: a sweep is background work and holds one connection at most. */
async function eachAlone<Key extends RunKey>(
  db: Db,
  candidates: readonly Key[],
  sweepOne: (tx: Tx, key: Key) => Promise<boolean>,
): Promise<Sweep> {
  let changed = 0;
  let failed = 0;
  for (const key of candidates) {
    try {
      if (await inTransaction(db, (tx) => sweepOne(tx, key))) changed += 1;
    } catch (error) {
      failed += 1;
      db.options.onError(error instanceof Error ? error : new Error(String(error)), `the sweep of run ${key.runId}`);
    }
  }
  return { changed, failed };
}
