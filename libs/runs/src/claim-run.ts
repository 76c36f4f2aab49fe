import { ClaimRun, LIST_ROWS_MAX, newId, parseInput, RunCancelling, RunClaimed, type ClaimedRun } from '@runplane/contracts';
import { announce, column, executorOf, isTx, oneRow, sql, takingLock, type At } from '@runplane/database';
import { feedStreams } from '@runplane/outbox';
import { z } from 'zod';
import { claimRunRow, type ClaimRow } from './claim.sql';
import { listCommandsAfter } from './command.sql';
import { runClosed } from './create-command';
import { absentRun, requireRun } from './require';
import { runStream, type RunKey } from './run.sql';

/** Twice the number of claims that can reasonably commit between a statement's snapshot and its lock. */
const LOOKS_MAX = 8;

/**
 * Claims a run for a runner, under a lease. The returned epoch is the fencing token: every later call of the runner names it.
 *
 * Input     runnerId: one incarnation of a runner; leaseMs: 5 s to 10 min, default 30 s.
 * Returns   the run, the epoch, the remaining lease and duration, and the open commands. A repeated call of the holder keeps its epoch and prolongs.
 * Locks     run → run lease, in one statement.   Writes: runs, run_leases, run_events, outbox.
 * Errors    RunNotFound, RunClosed, RunCancelling, RunClaimed (with holder and remaining lease).
 * Emits     run-claimed; before it claim-lost where an ended lease is taken over.
 * Keeps     OWN-1, OWN-2, OWN-3, LOG-2.   Source: the original's claimRun.
 */
export async function claimRun(at: At, { tenantId, runId, ...input }: RunKey & ClaimRun): Promise<ClaimedRun> {
  const { runnerId, leaseMs } = parseInput(ClaimRun, input);
  const key = { tenantId, runId };
  const claim = await judgedClaim(at, key, { runnerId, leaseMs });
  assertGranted(claim, key);
  if (claim.verdict !== 'keep') for (const stream of [runStream(key), ...feedStreams(tenantId)]) announce(at, stream);
  const on = executorOf(at);
  const run = await requireRun(on, key);
  const commands = await listCommandsAfter(on, key, { afterSeq: 0, limit: LIST_ROWS_MAX, openOnly: true });
  const { serverTime } = await oneRow(
    on,
    z.object({ serverTime: column.time }),
    sql`SELECT runplane.wire_time(runplane.app_now()) AS "serverTime"`,
  );
  return {
    run,
    epoch: claim.epoch,
    leaseRemainingMs: run.leaseRemainingMs ?? 0,
    durationRemainingMs: run.durationRemainingMs,
    commands,
    serverTime,
  };
}

async function judgedClaim(at: At, key: RunKey, { runnerId, leaseMs }: { runnerId: string; leaseMs: number }): Promise<ClaimRow> {
  if (isTx(at)) for (const rank of ['run', 'runLease'] as const) takingLock(at, rank, `${key.tenantId}/${key.runId}`);
  for (let look = 1; look <= LOOKS_MAX; look += 1) {
    const floor = isTx(at) ? at.feed.value : 0n;
    const claim = await claimRunRow(executorOf(at), key, { runnerId, leaseMs, eventIds: [newId('evt'), newId('evt')], floor });
    if (claim === undefined) throw await absentRun(executorOf(at), key);
    if (claim.verdict !== 'again') return claim;
  }
  throw new Error(`run ${key.runId}: lease and run disagree about the epoch (OWN-1)`);
}

function assertGranted(claim: ClaimRow, { runId }: RunKey): void {
  if (claim.verdict === 'closed') throw runClosed({ id: runId, status: claim.status, failureKind: claim.failureKind });
  if (claim.verdict === 'cancelling') throw new RunCancelling(`Run ${runId} is being cancelled: there is nothing left to do.`, { runId });
  if (claim.verdict !== 'refuse') return;
  throw new RunClaimed(`Run ${runId} is claimed by another runner.`, {
    runId,
    claimedBy: claim.holder,
    leaseRemainingMs: Math.max(claim.remainingMs ?? 0, 0),
  });
}
