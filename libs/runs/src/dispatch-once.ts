import {
  DISPATCH_ATTEMPTS_MAX,
  DISPATCH_BACKOFF_MS_MAX,
  DISPATCH_BACKOFF_MS_MIN,
  DISPATCH_LEASE_MS,
  isDomainError,
  isFinalRun,
  newId,
  redactError,
  type Run,
} from '@runplane/contracts';
import { backOffMs, inTransaction, remainingSince, type Db, type Tx } from '@runplane/database';
import {
  claimDispatchIntents,
  completeDispatchIntent,
  deferDispatchIntent,
  retryDispatchIntent,
  terminalizeDispatchIntent,
  type DispatchCompletion,
} from './dispatch-intents';
import { listRunnerLimits } from './backend.sql';
import type { IntentClaim, IntentRow } from './dispatch-intent.sql';
import { failUnclaimedJob } from './fail-unclaimed-job';
import { LaunchFailed, type Launcher, type LaunchResult } from './launcher';
import { releaseReservation } from './reservations';
import { findRun, type RunKey } from './run.sql';
import { keepHeld, reserveBackendSlot } from './runner-slots';

export interface DispatchReport {
  readonly launched: number;
  readonly retried: number;
  readonly failed: number;
  /** Given back to wait in line: their backend has no place free. */
  readonly waiting: number;
  /** Claims that were over before they were settled: the run ended, or another dispatcher took over. */
  readonly stale: number;
}

type Settled = keyof DispatchReport;

/**
 * One bounded pass of a dispatcher: claims due intents, launches a runner for each outside any transaction, records what came of it. A
 * launch that failed is tried again with a back-off, up to 8 attempts; a permanent failure ends the run at once. A dispatcher that
 * dies anywhere leaves an intent that another one claims after the lease, and a launcher that finds its first try. Of a backend whose capacity
 * names `maxRunners` (see registerBackends) no more than that many are live or being launched, over all dispatchers; the others wait.
 */
export async function dispatchOnce(
  db: Db,
  { launcher, owner, limit, leaseMs }: { launcher: Launcher; owner: string; limit?: number | undefined; leaseMs?: number | undefined },
): Promise<DispatchReport> {
  const intents = await claimDispatchIntents(db, { owner, limit, leaseMs });
  const report = { launched: 0, retried: 0, failed: 0, waiting: 0, stale: 0 };
  if (intents.length === 0) return report;
  const limits = await listRunnerLimits(db.sql);
  // All are awaited, also when one fails: the next pass, or the end of the process, must not find launches under way.
  const settled = await Promise.allSettled(intents.map((intent) => dispatch({ db, launcher, limits }, owner, intent)));
  for (const each of settled) {
    if (each.status === 'rejected') throw each.reason;
    report[each.value] += 1;
  }
  return report;
}

interface Dispatcher {
  readonly db: Db;
  readonly launcher: Launcher;
  /** The most runners that a profile may have. */
  readonly limits: ReadonlyMap<string, number>;
}

async function dispatch(dispatcher: Dispatcher, owner: string, intent: IntentRow): Promise<Settled> {
  const { tenantId, runId, commandId, runnerJobId, attempts, lastError } = intent;
  const claim = { tenantId, runId, commandId, runnerJobId, attempts, lastError, intentId: intent.id, owner, epoch: intent.epoch };
  try {
    const run = await findRun(dispatcher.db.sql, claim);
    if (run === undefined || isFinalRun(run.status)) return 'stale';
    return await inPlace(dispatcher, run, claim, (place) => launchAndSettle(dispatcher, run, intent, { claim, place }));
  } catch (error) {
    if (isDomainError(error) && error.code === 'stale_dispatch_claim') return 'stale';
    throw error;
  }
}

type Claim = IntentClaim & { readonly runnerJobId: string; readonly attempts: number; readonly lastError: string | null };

/** What a launch holds of its backend's capacity. */
interface Place {
  readonly signal: AbortSignal | undefined;
  /** In the transaction that settles: from its commit on, the run itself counts, or nothing does. */
  giveBack(tx: Tx): Promise<void>;
}

const NO_PLACE: Place = { signal: undefined, giveBack: () => Promise.resolve() };

/**
 * Launches in a place of the backend, where its capacity is limited; without a free one the intent waits. A place that is lost meanwhile is told
 * to the launcher by its signal; a runner that was launched all the same is recorded: a second one would be worse than one too many.
 */
async function inPlace({ db, limits }: Dispatcher, run: Run, claim: Claim, work: (place: Place) => Promise<Settled>): Promise<Settled> {
  const maxRunners = limits.get(run.backendProfile);
  if (maxRunners === undefined || hasLiveRunner(run)) return work(NO_PLACE);
  const { backendProfile } = run;
  const wanted = { backendProfile, maxRunners, owner: newId('slot'), leaseMs: DISPATCH_LEASE_MS, run: claim };
  const askedAt = performance.now();
  const reserved = await inTransaction(db, (tx) => reserveBackendSlot(tx, wanted));
  if (reserved.kind === 'refused') {
    await inTransaction(db, (tx) => deferDispatchIntent(tx, claim, { limit: maxRunners, ...reserved }));
    return 'waiting';
  }
  const { reservation, remainingMs } = reserved;
  const keeper = keepHeld(db, reservation, { leaseMs: DISPATCH_LEASE_MS, remainingMs: remainingSince(remainingMs, askedAt) });
  const giveBack = async (tx: Tx): Promise<void> => {
    await releaseReservation(tx, reservation);
  };
  try {
    return await work({ signal: keeper.lost, giveBack });
  } finally {
    await keeper.stop();
    await releaseReservation(db, reservation).catch(() => undefined); // where nothing was settled; otherwise it ends by itself
  }
}

async function launchAndSettle(
  { db, launcher }: Dispatcher,
  run: Run,
  intent: IntentRow,
  { claim, place }: { claim: Claim; place: Place },
): Promise<Settled> {
  const { tenantId, runId, runnerJobId: jobId, attempts } = claim;
  const completion = await launch(launcher, run, intent, place.signal);
  const settle = (write: (tx: Tx) => Promise<void>): Promise<void> =>
    inTransaction(db, async (tx) => {
      await write(tx);
      await place.giveBack(tx);
    });
  if (completion.kind === 'launched') {
    await settle((tx) => completeDispatchIntent(tx, claim, completion.completion));
    void reportEnd(db, { tenantId, runId, jobId }, completion.ended);
    return 'launched';
  }
  if (completion.permanent || attempts >= DISPATCH_ATTEMPTS_MAX) {
    await settle((tx) => terminalizeDispatchIntent(tx, claim, { ...completion, attempts }));
    return 'failed';
  }
  const backOff = backOffMs(attempts, { baseMs: DISPATCH_BACKOFF_MS_MIN, maxMs: DISPATCH_BACKOFF_MS_MAX });
  const delayMs = Math.min(Math.max(backOff, completion.retryAfterMs), DISPATCH_BACKOFF_MS_MAX);
  await settle((tx) => retryDispatchIntent(tx, claim, { error: completion.message, delayMs }));
  return 'retried';
}

/** Nobody waits for it: a report that is lost with this process is made up for by the claim deadline. Most runs have ended by then. */
async function reportEnd(db: Db, job: RunKey & { jobId: string }, ended: Promise<string> | undefined): Promise<void> {
  try {
    if (ended === undefined) return;
    const reason = await ended;
    if (db.pool.ending) return;
    const run = await findRun(db.sql, job);
    if (run !== undefined && !isFinalRun(run.status)) await inTransaction(db, (tx) => failUnclaimedJob(tx, { ...job, reason }));
  } catch (error) {
    db.options.onError(error instanceof Error ? error : new Error(String(error)), `the end of job ${job.jobId}`);
  }
}

type Launched =
  | { kind: 'launched'; completion: DispatchCompletion; ended?: Promise<string> | undefined }
  | { kind: 'failed'; permanent: boolean; failureKind: string; message: string; retryAfterMs: number };

const hasLiveRunner = (run: Run): boolean => run.claimedBy !== null && (run.leaseRemainingMs ?? 0) > 0;

/** A run that a live runner holds needs no second one: it sees the new command with its next heartbeat. */
async function launch(launcher: Launcher, run: Run, intent: IntentRow, signal: AbortSignal | undefined): Promise<Launched> {
  if (run.claimedBy !== null && hasLiveRunner(run)) {
    return { kind: 'launched', completion: { outcome: 'active-runner', activeRunnerId: run.claimedBy } };
  }
  try {
    const request = {
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
      maxDurationMs: run.maxDurationMs,
    };
    const launched: LaunchResult = await launcher.launch(request, { signal });
    const { outcome, launcher: kind = launcher.kind, jobName, result, place, ended } = launched;
    return { kind: 'launched', completion: { outcome, job: { launcher: kind, jobName, result, place } }, ended };
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
