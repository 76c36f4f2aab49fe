import {
  DISPATCH_ATTEMPTS_MAX,
  DISPATCH_BACKOFF_MS_MAX,
  DISPATCH_BACKOFF_MS_MIN,
  isDomainError,
  isFinalRun,
  redactError,
  type Run,
} from '@runplane/contracts';
import { backOffMs, inTransaction, type Db } from '@runplane/database';
import {
  claimDispatchIntents,
  completeDispatchIntent,
  retryDispatchIntent,
  terminalizeDispatchIntent,
  type DispatchCompletion,
} from './dispatch-intents';
import type { IntentRow } from './dispatch-intent.sql';
import { failUnclaimedJob } from './fail-unclaimed-job';
import { LaunchFailed, type Launcher, type LaunchResult } from './launcher';
import { findRun } from './run.sql';

export interface DispatchReport {
  readonly launched: number;
  readonly retried: number;
  readonly failed: number;
  /** Claims that were over before they were settled: the run ended, or another dispatcher took over. */
  readonly stale: number;
}

type Settled = keyof DispatchReport;

/**
 * One bounded pass of a dispatcher: claims due intents, launches a runner for each outside any transaction, records what came of it. A
 * launch that failed is tried again with a back-off, up to 8 attempts; a permanent failure ends the run at once. A dispatcher that
 * dies anywhere leaves an intent that another one claims after the lease, and a launcher that finds its first try.
 */
export async function dispatchOnce(
  db: Db,
  { launcher, owner, limit, leaseMs }: { launcher: Launcher; owner: string; limit?: number | undefined; leaseMs?: number | undefined },
): Promise<DispatchReport> {
  const intents = await claimDispatchIntents(db, { owner, limit, leaseMs });
  const report = { launched: 0, retried: 0, failed: 0, stale: 0 };
  // All are awaited, also when one fails: the next pass, or the end of the process, must not find launches under way.
  const settled = await Promise.allSettled(intents.map((intent) => dispatch(db, launcher, owner, intent)));
  for (const each of settled) {
    if (each.status === 'rejected') throw each.reason;
    report[each.value] += 1;
  }
  return report;
}

async function dispatch(db: Db, launcher: Launcher, owner: string, intent: IntentRow): Promise<Settled> {
  const { tenantId, runId, commandId, runnerJobId, attempts } = intent;
  const claim = { tenantId, runId, commandId, runnerJobId, attempts, intentId: intent.id, owner, epoch: intent.epoch };
  try {
    const run = await findRun(db.sql, claim);
    if (run === undefined || isFinalRun(run.status)) return 'stale';
    const completion = await launch(launcher, run, intent);
    if (completion.kind === 'launched') {
      await inTransaction(db, (tx) => completeDispatchIntent(tx, claim, completion.completion));
      void completion.ended?.then((reason) => reportEnd(db, { tenantId, runId, jobId: runnerJobId, reason }));
    } else if (completion.permanent || attempts >= DISPATCH_ATTEMPTS_MAX) {
      await inTransaction(db, (tx) => terminalizeDispatchIntent(tx, claim, { ...completion, attempts }));
      return 'failed';
    } else {
      const backOff = backOffMs(attempts, { baseMs: DISPATCH_BACKOFF_MS_MIN, maxMs: DISPATCH_BACKOFF_MS_MAX });
      const delayMs = Math.min(Math.max(backOff, completion.retryAfterMs), DISPATCH_BACKOFF_MS_MAX);
      await inTransaction(db, (tx) => retryDispatchIntent(tx, claim, { error: completion.message, delayMs }));
      return 'retried';
    }
    return 'launched';
  } catch (error) {
    if (isDomainError(error) && error.code === 'stale_dispatch_claim') return 'stale';
    throw error;
  }
}

/** Nobody waits for it: a report that is lost with this process is made up for by the claim deadline. Most runs have ended by then. */
async function reportEnd(db: Db, job: Parameters<typeof failUnclaimedJob>[1]): Promise<void> {
  try {
    if (db.pool.ending) return;
    const run = await findRun(db.sql, job);
    if (run !== undefined && !isFinalRun(run.status)) await inTransaction(db, (tx) => failUnclaimedJob(tx, job));
  } catch (error) {
    db.options.onError(error instanceof Error ? error : new Error(String(error)), `the end of job ${job.jobId}`);
  }
}

type Launched =
  | { kind: 'launched'; completion: DispatchCompletion; ended?: Promise<string> | undefined }
  | { kind: 'failed'; permanent: boolean; failureKind: string; message: string; retryAfterMs: number };

/** A run that a live runner holds needs no second one: it sees the new command with its next heartbeat. */
async function launch(launcher: Launcher, run: Run, intent: IntentRow): Promise<Launched> {
  if (run.claimedBy !== null && (run.leaseRemainingMs ?? 0) > 0) {
    return { kind: 'launched', completion: { outcome: 'active-runner', activeRunnerId: run.claimedBy } };
  }
  try {
    const {
      outcome,
      launcher: kind,
      jobName,
      result,
      place,
      ended,
    }: LaunchResult = await launcher.launch({
      tenantId: run.tenantId,
      runId: run.id,
      commandId: intent.commandId,
      intentId: intent.id,
      runnerJobId: intent.runnerJobId,
      runnerId: `runner_${intent.runnerJobId}`,
      backendProfile: run.backendProfile,
      workspaceRef: run.workspaceRef,
      input: intent.input,
      executionPolicy: run.executionPolicy,
    });
    return { kind: 'launched', completion: { outcome, job: { launcher: kind ?? launcher.kind, jobName, result, place } }, ended };
  } catch (error) {
    const known = error instanceof LaunchFailed ? error : undefined;
    return {
      kind: 'failed',
      permanent: known?.permanent ?? false,
      failureKind: known?.failureKind ?? 'infra-failed',
      message: redactError(error),
      retryAfterMs: known?.retryAfterMs ?? 0,
    };
  }
}
