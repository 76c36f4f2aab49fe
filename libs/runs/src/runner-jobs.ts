import {
  CommandNotOfRun,
  contentHash,
  cursorTime,
  defineCursor,
  freeText,
  IdempotencyConflict,
  identifier,
  isFinalCommand,
  isFinalRun,
  JsonRecord,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  newId,
  normalizeJson,
  parseInput,
  PayloadTooLarge,
  RECONCILIATION_ROWS_DEFAULT,
  RECONCILIATION_ROWS_MAX,
  redactJson,
  REFERENCE_BYTES_MAX,
  requireIdentifier,
  RunnerJobNotFound,
  SaveRunnerJob,
  type JsonObject,
  type RunnerJob,
} from '@runplane/contracts';
import { executorOf, inLockOrder, isTx, takingLock, type At, type Tx } from '@runplane/database';
import { z } from 'zod';
import { findCommand } from './command.sql';
import { absentRun, requireLockedRun } from './require';
import type { RunKey } from './run.sql';
import {
  completeRunnerJob,
  findRunnerJob,
  findRunnerJobByKey,
  insertRunnerJob,
  listRunnerJobsPage,
  mergeIntoResult,
  takeJobsToReconcile,
  writeJobsSettled,
  writeJobsUnchecked,
  type JobKey,
  type JobToReconcile,
  type NewRunnerJob,
} from './runner-job.sql';

// The records of launched jobs: processes, Kubernetes Jobs. Made by the dispatcher's settle, or saved here by a dispatcher elsewhere; looked at
// again and again by reconciliation until their run and command have ended and the launcher knows them no more.

/** The version of a hash that the caller has made. */
const CALLERS_HASH = 0;
const JOB_TEXT_CODE_POINTS_MAX = 1_000;
const RECONCILIATION_REST_MS = 5_000;

/**
 * Records a job that somebody has made for a command of a run. With a key or a planned id a repeat finds the record. The run may have
 * ended: a job that exists must be known, so that it can be removed.
 *
 * Input     job: see SaveRunnerJob; idempotencyKey: unique per run.
 * Returns   the record; `replayed: true` when it was there. Under a planned id that the dispatcher has recorded already, what the dispatcher did not
 *           know is filled in.
 * Locks     run → runner job.   Writes: runner_jobs.   Emits: nothing.
 * Errors    RunNotFound, CommandNotOfRun, IdempotencyConflict (other hash, or the id belongs to another command), InvalidRequest, InvalidJson,
 *           InvalidIdentifier, PayloadTooLarge.
 * Keeps     IDEM-1, TEN-1.   Source: the original's saveRunnerJob.
 */
export async function saveRunnerJob(
  tx: Tx,
  { tenantId, runId, idempotencyKey, job: input }: RunKey & { idempotencyKey?: string | undefined; job: SaveRunnerJob },
): Promise<{ job: RunnerJob; replayed: boolean }> {
  const wanted = wantedJob({ tenantId, runId }, input, idempotencyKey);
  await requireLockedRun(tx, wanted);
  const command = await findCommand(tx, wanted);
  if (command?.runId !== runId)
    throw new CommandNotOfRun(`Command ${wanted.commandId} does not belong to run ${runId}.`, { commandId: wanted.commandId });

  const known = await findKnown(tx, wanted);
  if (known !== undefined) return { job: await replayOf(tx, known, wanted), replayed: true };
  const job = await insertRunnerJob(tx, wanted);
  if (job === undefined) throw conflictWith(wanted.jobId); // a job of another run has the id
  return { job, replayed: false };
}

/** The hash leaves the result out: it tells how the job is, not which one it is. */
function wantedJob(key: RunKey, input: SaveRunnerJob, idempotencyKey: string | undefined): NewRunnerJob {
  const { jobId, payloadHash, result = {}, ...facts } = parseInput(SaveRunnerJob, input);
  const given = Object.entries(facts).filter(([, value]) => value !== undefined);
  const own = contentHash(normalizeJson(Object.fromEntries(given) as JsonObject).value);
  const text = (value: string | undefined): string | null => (value === undefined ? null : freeText(value, JOB_TEXT_CODE_POINTS_MAX));
  return {
    ...key,
    jobId: jobId ?? newId('rjob'),
    commandId: facts.commandId,
    launcher: facts.launcher,
    jobName: freeText(facts.jobName, JOB_TEXT_CODE_POINTS_MAX),
    idempotencyKey: idempotencyKey === undefined ? null : requireIdentifier(idempotencyKey, 'the idempotency key'),
    payloadHash: payloadHash ?? own.hash,
    hashVersion: payloadHash === undefined ? own.version : CALLERS_HASH,
    attemptId: facts.attemptId ?? null,
    runnerId: facts.runnerId ?? null,
    namespace: text(facts.namespace),
    managerUrl: text(facts.managerUrl),
    image: text(facts.image),
    sourceCommit: text(facts.sourceCommit),
    serviceAccountName: text(facts.serviceAccountName),
    result: storable(result),
  };
}

const storable = (result: JsonObject): JsonObject => redactJson<JsonObject>(normalizeJson(result, { bytesMax: REFERENCE_BYTES_MAX }).value);

async function findKnown(tx: Tx, wanted: NewRunnerJob): Promise<RunnerJob | undefined> {
  const byKey = wanted.idempotencyKey === null ? undefined : await findRunnerJobByKey(tx, wanted, wanted.idempotencyKey);
  return byKey ?? findRunnerJob(tx, wanted);
}

/** A record without a hash is the dispatcher's own, made when the launch was settled. Errors: IdempotencyConflict. */
async function replayOf(tx: Tx, known: RunnerJob, wanted: NewRunnerJob): Promise<RunnerJob> {
  const otherKey = known.idempotencyKey !== null && wanted.idempotencyKey !== null && known.idempotencyKey !== wanted.idempotencyKey;
  const isOther = known.runId !== wanted.runId || otherKey || (known.payloadHash !== null && known.payloadHash !== wanted.payloadHash);
  if (isOther || (known.payloadHash === null && known.commandId !== wanted.commandId)) throw conflictWith(known.id);
  return known.payloadHash === null ? completeRunnerJob(tx, { ...wanted, jobId: known.id }) : known;
}

const conflictWith = (id: string): IdempotencyConflict =>
  new IdempotencyConflict(`Runner job ${id} was recorded before with other content.`, { resource: 'runner job', id });

/**
 * The job that a key has in its run, or null. With `payloadHash`, the record must have it.
 * Errors: IdempotencyConflict.   Source: the original's getRunnerJobByIdempotencyKey.
 */
export async function getRunnerJobByIdempotencyKey(
  at: At,
  { tenantId, runId, idempotencyKey, payloadHash }: RunKey & { idempotencyKey: string; payloadHash?: string | undefined },
): Promise<RunnerJob | null> {
  const job = await findRunnerJobByKey(executorOf(at), { tenantId, runId }, requireIdentifier(idempotencyKey, 'the idempotency key'));
  if (job === undefined) return null;
  if (payloadHash !== undefined && job.payloadHash !== payloadHash) throw conflictWith(job.id);
  return job;
}

/** Reads a job. Errors: RunnerJobNotFound. */
export async function getRunnerJob(at: At, key: JobKey): Promise<RunnerJob> {
  const job = await findRunnerJob(executorOf(at), key);
  if (job === undefined) throw jobNotFound(key.jobId);
  return job;
}

const jobNotFound = (jobId: string): RunnerJobNotFound => new RunnerJobNotFound(`There is no runner job ${jobId}.`, { jobId });

const jobCursor = defineCursor('runner-jobs', z.strictObject({ createdAt: cursorTime, id: identifier }));
const ListLimit = z.int().min(1).max(LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT);

/** One page of a run's jobs, or of one of its commands, oldest first. Errors: RunNotFound, InvalidCursor, InvalidRequest. */
export async function listRunnerJobs(
  at: At,
  {
    tenantId,
    runId,
    commandId,
    cursor,
    limit,
  }: RunKey & { commandId?: string | undefined; cursor?: string | undefined; limit?: number | undefined },
): Promise<{ jobs: RunnerJob[]; cursor: string | null }> {
  const rowsMax = parseInput(ListLimit, limit);
  const filterHash = contentHash({ tenantId, runId, commandId: commandId ?? null }).hash;
  const after = cursor === undefined ? undefined : jobCursor.decode(cursor, filterHash);
  const on = executorOf(at);
  const found = await listRunnerJobsPage(on, { tenantId, runId, commandId }, { after, limit: rowsMax + 1 });
  if (found === undefined) throw await absentRun(on, { tenantId, runId });
  const jobs = found.slice(0, rowsMax);
  const last = jobs.at(-1);
  const isMore = found.length > rowsMax && last !== undefined;
  return { jobs, cursor: isMore ? jobCursor.encode({ createdAt: last.createdAt, id: last.id }, filterHash) : null };
}

/**
 * Merges into a job's result at its top level, redacted; with `runId`, of that run only. One guarded statement: two callers' merges both stand.
 * Errors: RunnerJobNotFound, InvalidJson, PayloadTooLarge (also of the merged whole).   Source: the original's updateRunnerJobResult.
 */
export async function mergeRunnerJobResult(
  at: At,
  { tenantId, runId, jobId, patch }: JobKey & { runId?: string | undefined; patch: JsonObject },
): Promise<RunnerJob> {
  const key = { tenantId, jobId };
  if (isTx(at)) takingLock(at, 'runnerJob', `${tenantId}/${jobId}`);
  const merged = await mergeIntoResult(executorOf(at), key, storable(parseInput(JsonRecord, patch)), {
    runId,
    bytesMax: REFERENCE_BYTES_MAX,
  });
  if (merged !== undefined) return merged;
  const job = await getRunnerJob(at, key);
  if (runId !== undefined && job.runId !== runId) throw jobNotFound(jobId);
  throw new PayloadTooLarge(`The result of runner job ${jobId} would become too large.`, { bytesMax: REFERENCE_BYTES_MAX });
}

/** A job to look at. `isOpen`: its run or its command had not ended when it was taken. */
export type ReconciliationJob = JobToReconcile & { readonly isOpen: boolean };

const Reconciliation = z.strictObject({
  launcher: identifier,
  limit: z.int().min(1).max(RECONCILIATION_ROWS_MAX).default(RECONCILIATION_ROWS_DEFAULT),
  restMs: z.int().min(0).max(86_400_000).default(RECONCILIATION_REST_MS),
  openOnly: z.boolean().default(false),
});

/**
 * Takes unsettled jobs of one kind of launcher, of all tenants, for a look: least recently checked first. Each call moves their `lastCheckedAt`, so
 * that a pass that changes nothing still comes round, and two passes at once take different jobs.
 *
 * Input     launcher; limit: 1–500, default 100; restMs: a job is left alone for so long after a look, default 5 s; openOnly: leave out
 *           those whose run and command have ended, which by default are there too until settleRunnerJobs: what they made must be removed.
 * Locks     none that waits (SKIP LOCKED).   Errors: InvalidRequest.   Source: the original's listRunnerJobsForReconciliation.
 */
export async function listRunnerJobsForReconciliation(at: At, input: z.input<typeof Reconciliation>): Promise<ReconciliationJob[]> {
  const jobs = await takeJobsToReconcile(executorOf(at), parseInput(Reconciliation, input));
  return jobs.map((job) => ({
    ...job,
    isOpen: !isFinalRun(job.runStatus) || (job.commandState !== null && !isFinalCommand(job.commandState)),
  }));
}

/** Gives jobs that were taken for a look, and were not looked at, back: they are due at once, before those that were. Locks: the jobs, by tenant and id. */
export async function returnRunnerJobs(at: At, { jobs }: { jobs: readonly JobKey[] }): Promise<void> {
  takingJobs(at, jobs);
  await writeJobsUnchecked(executorOf(at), jobs);
}

/**
 * Ends the reconciliation of jobs whose run and command have ended and of which the launcher has nothing left. Others are left as they are.
 * Returns the ids that were settled by this call. Locks: the jobs, by tenant and id.
 */
export async function settleRunnerJobs(at: At, { jobs }: { jobs: readonly JobKey[] }): Promise<{ settled: string[] }> {
  takingJobs(at, jobs);
  return { settled: await writeJobsSettled(executorOf(at), jobs) };
}

function takingJobs(at: At, jobs: readonly JobKey[]): void {
  if (isTx(at)) takingLock(at, 'runnerJob', ...inLockOrder(jobs.map(({ tenantId, jobId }) => `${tenantId}/${jobId}`)));
}
