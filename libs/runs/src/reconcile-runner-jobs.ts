import { freeText, type JsonObject } from '@runplane/contracts';
import { inTransaction, type Db } from '@runplane/database';
import { failUnclaimedJob } from './fail-unclaimed-job';
import { JobHidden, type Launcher, type ListedJob, type ObservedJob } from './launcher';
import { findOrphans, type JobKey } from './runner-job.sql';
import {
  listRunnerJobsForReconciliation,
  mergeRunnerJobResult,
  returnRunnerJobs,
  settleRunnerJobs,
  type ReconciliationJob,
} from './runner-jobs';

export interface Reconciliation {
  /** Runs that were ended or requeued, and jobs that were removed. */
  readonly changed: number;
  /** Jobs that could not be asked about or removed, and records that could not be written; the next pass finds them again. */
  readonly failed: number;
}

/** A job's runner needs a moment to say good-bye after its run has ended, and a launch one to be recorded. */
const ORPHAN_GRACE_MS = 60_000;

/**
 * Compares the recorded jobs with what the launcher sees, and settles the differences:
 *
 * - A job that has ended, or is gone, is recorded as such with reason and message, in `result.ended`. If its run still waits for it, the run's
 *   policy for lost runners applies at once (failUnclaimedJob): requeued, or failed as `infra-failed` (the job has failed) or `runner-lost` (it
 *   is gone). A claimed run is its lease's business.
 * - A job that runs on for a run which ended more than a minute ago, or which does not exist, is removed, if it is still the one that was seen.
 * - The record of a job whose run has ended, and which is not active any more, is settled.
 *
 * The records are read first, the outside then, in no transaction: a job that is recorded in between is looked at by the next pass.
 *
 * Input     limit: records of each kind of launcher in one pass; restMs: how long a record is left alone after a look.
 * Locks     none while the outside is asked; then, one job at a time, those of failUnclaimedJob.
 * Emits     what failUnclaimedJob does.   Repeat: safe; two passes at once look at different records.
 */
export async function reconcileRunnerJobsOnce(
  db: Db,
  { launcher, limit, restMs }: { launcher: Launcher; limit?: number | undefined; restMs?: number | undefined },
): Promise<Reconciliation> {
  const pass = new Pass(db);
  for (const part of launcher.parts ?? [launcher]) {
    if (part.find !== undefined) await pass.attempt(`${part.kind} jobs`, () => reconcile(pass, db, part, { limit, restMs }));
  }
  return { changed: pass.changed, failed: pass.failed };
}

/**
 * A list or a look that fails ends the asking: nothing is there to answer (but a place, or a job, that is hidden from us is only skipped, and told). What was seen until then counts; what was not asked for comes first in
 * the next pass, or one job that always fails would hide those behind it for ever.
 */
async function reconcile(
  pass: Pass,
  db: Db,
  launcher: Launcher,
  page: { limit: number | undefined; restMs: number | undefined },
): Promise<void> {
  const recorded = await listRunnerJobsForReconciliation(db, { launcher: launcher.kind, ...page });
  const onFailure = (what: string, error: unknown): void => {
    pass.fail(what, error);
  };
  const listed = (await launcher.list?.({ onFailure })) ?? [];
  const seen = new Map(listed.map((job) => [keyOf(job.tenantId, job.runnerJobId), job]));

  const inactive: ReconciliationJob[] = [];
  for (const [at, job] of recorded.entries()) {
    // What the list does not have is asked for by name: it may have been recorded after, or be none that can be listed.
    const observed = seen.get(keyOf(job.tenantId, job.id)) ?? (await pass.attempt(`job ${job.jobName}`, () => find(pass, launcher, job)));
    if (observed === undefined) {
      await returnRunnerJobs(db, { jobs: keysOf(recorded.slice(at + 1)) });
      break;
    }
    if (observed === 'hidden' || observed.state === 'active') continue;
    inactive.push(job);
    if (observed.state !== 'unknown') await pass.count(`job ${job.jobName}`, () => recordEnd(db, job, observed));
  }
  await settleRunnerJobs(db, { jobs: keysOf(inactive) });

  const old = listed.filter(({ state, ageMs }) => state === 'active' && ageMs > ORPHAN_GRACE_MS);
  for (const at of await findOrphans(db.sql, old, { endedForMs: ORPHAN_GRACE_MS })) {
    const orphan = old[at] as ListedJob;
    await pass.count(`job ${orphan.jobName}`, async () => (await launcher.remove?.(orphan)) ?? false);
  }
}

/** Counts, and lets no single failure hide the rest. */
class Pass {
  changed = 0;
  failed = 0;
  private readonly db: Db;

  constructor(db: Db) {
    this.db = db;
  }

  async attempt<T>(what: string, step: () => Promise<T>): Promise<T | undefined> {
    try {
      return await step();
    } catch (error) {
      this.fail(what, error);
      return undefined;
    }
  }

  fail(what: string, error: unknown): void {
    this.failed += 1;
    this.db.options.onError(error instanceof Error ? error : new Error(String(error)), `the reconciliation of ${what}`);
  }

  async count(what: string, step: () => Promise<boolean>): Promise<void> {
    if ((await this.attempt(what, step)) === true) this.changed += 1;
  }
}

const keysOf = (jobs: readonly ReconciliationJob[]): JobKey[] => jobs.map(({ tenantId, id: jobId }) => ({ tenantId, jobId }));
const keyOf = (tenantId: string, runnerJobId: string): string => `${tenantId}/${runnerJobId}`;

async function find(pass: Pass, launcher: Launcher, { id: runnerJobId, ...job }: ReconciliationJob): Promise<ObservedJob | 'hidden'> {
  try {
    return (await launcher.find?.({ ...job, runnerJobId })) ?? { state: 'unknown' };
  } catch (error) {
    if (!(error instanceof JobHidden)) throw error;
    pass.fail(`job ${job.jobName}`, error);
    return 'hidden';
  }
}

/** What has ended is told once; true when it has moved the run. */
async function recordEnd(db: Db, job: ReconciliationJob, observed: ObservedJob): Promise<boolean> {
  const { tenantId, runId, id: jobId, result } = job;
  let moved = false;
  if (job.runStatus === 'pending' && !('lost' in result)) {
    const { outcome } = await inTransaction(db, (tx) => failUnclaimedJob(tx, { tenantId, runId, jobId, ...lossOf(observed) }));
    moved = outcome !== 'kept';
  }
  if (!('ended' in result)) await mergeRunnerJobResult(db, { tenantId, jobId, patch: { ended: endOf(observed) } });
  return moved;
}

function endOf({ state, reason, message }: ObservedJob): JsonObject {
  return { state, reason: reason === undefined ? null : freeText(reason), message: message === undefined ? null : freeText(message) };
}

function lossOf({ state, reason, message }: ObservedJob): { reason: string; failureKind: 'runner-lost' | 'infra-failed' } {
  if (state === 'gone') return { reason: 'its job is gone', failureKind: 'runner-lost' };
  const why = [reason, message].filter((text) => text !== undefined && text !== '').join(': ');
  return { reason: why === '' ? `its job has ${state}` : `its job has ${state}: ${why}`, failureKind: 'infra-failed' };
}
