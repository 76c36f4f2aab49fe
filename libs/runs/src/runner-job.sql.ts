import { COMMAND_STATES, RUN_STATES, type JsonObject, type RunnerJob } from '@runplane/contracts';
import { column, emptySql, joinSql, maybeRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { JobPlace as LaunchedPlace } from './launcher';
import type { RunKey } from './run.sql';

export interface JobKey {
  readonly tenantId: string;
  readonly jobId: string;
}

const JobRow = z.object({
  id: column.text,
  tenantId: column.text,
  runId: column.text,
  commandId: column.text,
  intentId: column.text.nullable(),
  launcher: column.text,
  jobName: column.text,
  idempotencyKey: column.text.nullable(),
  payloadHash: column.text.nullable(),
  attemptId: column.text.nullable(),
  runnerId: column.text.nullable(),
  namespace: column.text.nullable(),
  managerUrl: column.text.nullable(),
  image: column.text.nullable(),
  sourceCommit: column.text.nullable(),
  serviceAccountName: column.text.nullable(),
  result: column.jsonObject,
  createdAt: column.time,
  updatedAt: column.time,
  lastCheckedAt: column.time,
  settledAt: column.time.nullable(),
}) satisfies z.ZodType<RunnerJob>;

const COLUMNS = sql`
  j.id AS "id", j.tenant_id AS "tenantId", j.run_id AS "runId", j.command_id AS "commandId", j.intent_id AS "intentId", j.launcher AS "launcher",
  j.job_name AS "jobName", j.idempotency_key AS "idempotencyKey", j.payload_hash AS "payloadHash", j.attempt_id AS "attemptId",
  j.runner_id AS "runnerId", j.namespace AS "namespace", j.manager_url AS "managerUrl", j.image AS "image", j.source_commit AS "sourceCommit",
  j.service_account_name AS "serviceAccountName", j.result::text AS "result", runplane.wire_time(j.created_at) AS "createdAt",
  runplane.wire_time(j.updated_at) AS "updatedAt", runplane.wire_time(j.last_checked_at) AS "lastCheckedAt",
  runplane.wire_time(j.settled_at) AS "settledAt"`;
const jobId = z.object({ id: column.text });

const takingJob = (tx: Tx, { tenantId, jobId: id }: JobKey): void => {
  takingLock(tx, 'runnerJob', `${tenantId}/${id}`);
};

/** Records the job that a launch has made; the same job again (an adopted one) keeps its first record and takes the new result. */
export async function upsertRunnerJob(
  tx: Tx,
  job: RunKey & {
    jobId: string;
    commandId: string;
    intentId: string;
    launcher: string;
    jobName: string;
    result: JsonObject;
    place?: LaunchedPlace | undefined;
  },
): Promise<void> {
  const { runnerId = null, namespace = null, image = null, serviceAccountName = null } = job.place ?? {};
  takingJob(tx, job);
  await tx.query(
    sql`
    INSERT INTO runplane.runner_jobs AS j (tenant_id, id, run_id, command_id, intent_id, launcher, job_name, result, runner_id, namespace, image,
      service_account_name)
    VALUES (${job.tenantId}::text, ${job.jobId}::text, ${job.runId}::text, ${job.commandId}::text, ${job.intentId}::text, ${job.launcher}::text,
      ${job.jobName}::text, ${JSON.stringify(job.result)}::jsonb, ${runnerId}::text, ${namespace}::text, ${image}::text, ${serviceAccountName}::text)
    ON CONFLICT (tenant_id, id) DO UPDATE SET job_name = excluded.job_name, intent_id = excluded.intent_id, result = j.result || excluded.result,
      runner_id = coalesce(excluded.runner_id, j.runner_id), namespace = coalesce(excluded.namespace, j.namespace),
      image = coalesce(excluded.image, j.image), service_account_name = coalesce(excluded.service_account_name, j.service_account_name),
      updated_at = runplane.app_now()`,
  );
}

/** Notes on a job that what was launched is gone. A job that is not recorded has nothing to note. */
export async function writeRunnerJobLost(tx: Tx, { tenantId, jobId: id, reason }: JobKey & { reason: string }): Promise<void> {
  takingJob(tx, { tenantId, jobId: id });
  await tx.query(
    sql`UPDATE runplane.runner_jobs SET result = result || jsonb_build_object('lost', ${reason}::text), updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND id = ${id}::text`,
  );
}

export function findRunnerJob(on: SqlExecutor, { tenantId, jobId: id }: JobKey): Promise<RunnerJob | undefined> {
  return maybeRow(
    on,
    JobRow,
    sql`SELECT ${COLUMNS} FROM runplane.runner_jobs j WHERE j.tenant_id = ${tenantId}::text AND j.id = ${id}::text`,
  );
}

export function findRunnerJobByKey(on: SqlExecutor, { tenantId, runId }: RunKey, key: string): Promise<RunnerJob | undefined> {
  return maybeRow(
    on,
    JobRow,
    sql`SELECT ${COLUMNS} FROM runplane.runner_jobs j
        WHERE j.tenant_id = ${tenantId}::text AND j.run_id = ${runId}::text AND j.idempotency_key = ${key}::text`,
  );
}

export interface NewRunnerJob extends RunKey, JobKey {
  readonly commandId: string;
  readonly launcher: string;
  readonly jobName: string;
  readonly idempotencyKey: string | null;
  readonly payloadHash: string;
  readonly hashVersion: number;
  readonly attemptId: string | null;
  readonly runnerId: string | null;
  readonly namespace: string | null;
  readonly managerUrl: string | null;
  readonly image: string | null;
  readonly sourceCommit: string | null;
  readonly serviceAccountName: string | null;
  readonly result: JsonObject;
}

/** Inserts a job of a locked run unless its id is taken; waits for a twin of another run that is inserting it. Undefined when it was there. */
export function insertRunnerJob(tx: Tx, job: NewRunnerJob): Promise<RunnerJob | undefined> {
  takingJob(tx, job);
  return maybeRow(
    tx,
    JobRow,
    sql`
    INSERT INTO runplane.runner_jobs AS j (tenant_id, id, run_id, command_id, launcher, job_name, idempotency_key, payload_hash, hash_version,
      attempt_id, runner_id, namespace, manager_url, image, source_commit, service_account_name, result)
    VALUES (${job.tenantId}::text, ${job.jobId}::text, ${job.runId}::text, ${job.commandId}::text, ${job.launcher}::text, ${job.jobName}::text,
      ${job.idempotencyKey}::text, ${job.payloadHash}::text, ${job.hashVersion}::smallint, ${job.attemptId}::text, ${job.runnerId}::text,
      ${job.namespace}::text, ${job.managerUrl}::text, ${job.image}::text, ${job.sourceCommit}::text, ${job.serviceAccountName}::text,
      ${JSON.stringify(job.result)}::jsonb)
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING ${COLUMNS}`,
  );
}

/** Completes the record that a dispatcher has made under the planned id, of a locked run: it knew less than whoever made the job. */
export async function completeRunnerJob(tx: Tx, job: NewRunnerJob): Promise<RunnerJob> {
  takingJob(tx, job);
  const [completed] = await rows(
    tx,
    JobRow,
    sql`
    UPDATE runplane.runner_jobs j SET idempotency_key = ${job.idempotencyKey}::text, payload_hash = ${job.payloadHash}::text,
      hash_version = ${job.hashVersion}::smallint, job_name = ${job.jobName}::text, attempt_id = coalesce(${job.attemptId}::text, j.attempt_id),
      runner_id = coalesce(${job.runnerId}::text, j.runner_id), namespace = coalesce(${job.namespace}::text, j.namespace),
      manager_url = coalesce(${job.managerUrl}::text, j.manager_url), image = coalesce(${job.image}::text, j.image),
      source_commit = coalesce(${job.sourceCommit}::text, j.source_commit),
      service_account_name = coalesce(${job.serviceAccountName}::text, j.service_account_name), result = j.result || ${JSON.stringify(job.result)}::jsonb, updated_at = runplane.app_now()
    WHERE j.tenant_id = ${job.tenantId}::text AND j.id = ${job.jobId}::text AND j.payload_hash IS NULL
    RETURNING ${COLUMNS}`,
  );
  if (completed === undefined) throw new Error(`runner job ${job.jobId} has a hash: its run is not locked`);
  return completed;
}

/** A place in the list of a run's jobs. */
export interface JobPlace {
  readonly createdAt: string;
  readonly id: string;
}

/** Jobs of a run, or of one of its commands, oldest first; undefined when there is no such run: one statement, one snapshot. */
export async function listRunnerJobsPage(
  on: SqlExecutor,
  { tenantId, runId, commandId }: RunKey & { commandId?: string | undefined },
  { after, limit }: { after: JobPlace | undefined; limit: number },
): Promise<RunnerJob[] | undefined> {
  const conditions = [
    sql`j.tenant_id = r.tenant_id AND j.run_id = r.id`,
    ...(commandId === undefined ? [] : [sql`j.command_id = ${commandId}::text`]),
    ...(after === undefined ? [] : [sql`(j.created_at, j.id) > (${after.createdAt}::timestamptz, ${after.id}::text)`]),
  ];
  const found = await rows(
    on,
    z.union([JobRow, z.object({ id: z.null() }).transform(() => undefined)]),
    sql`
    SELECT ${COLUMNS} FROM runplane.runs r
    LEFT JOIN LATERAL (
      SELECT * FROM runplane.runner_jobs j WHERE ${joinSql(conditions, ' AND ')} ORDER BY j.created_at, j.id LIMIT ${limit}::int
    ) j ON true
    WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text
    ORDER BY j.created_at, j.id`,
  );
  return found.length === 0 ? undefined : found.flatMap((job) => job ?? []);
}

/** Merges into a job's result at its top level, while the whole stays within `bytesMax`. Undefined: no such job, or too large. */
export function mergeIntoResult(
  on: SqlExecutor,
  { tenantId, jobId: id }: JobKey,
  patch: JsonObject,
  { runId, bytesMax }: { runId: string | undefined; bytesMax: number },
): Promise<RunnerJob | undefined> {
  const merged = sql`j.result || ${JSON.stringify(patch)}::jsonb`;
  return maybeRow(
    on,
    JobRow,
    sql`UPDATE runplane.runner_jobs j SET result = ${merged}, updated_at = runplane.app_now()
        WHERE j.tenant_id = ${tenantId}::text AND j.id = ${id}::text AND octet_length((${merged})::text) <= ${bytesMax}::int
          ${runId === undefined ? emptySql : sql`AND j.run_id = ${runId}::text`}
        RETURNING ${COLUMNS}`,
  );
}

const ReconcileRow = JobRow.extend({ runStatus: column.state(RUN_STATES), commandState: column.state(COMMAND_STATES).nullable() });
/** A job with the states of its run and command, as they were when it was taken: look again under the run's lock before acting on them. */
export type JobToReconcile = z.infer<typeof ReconcileRow>;

const runIsOpen = sql`EXISTS (SELECT FROM runplane.runs r WHERE r.tenant_id = j.tenant_id AND r.id = j.run_id AND r.finished_at IS NULL)`;
const commandIsOpen = sql`EXISTS (SELECT FROM runplane.commands c WHERE c.tenant_id = j.tenant_id AND c.id = j.command_id AND c.finished_at IS NULL)`;

/**
 * Takes unsettled jobs of a launcher for a look, least recently checked first, and moves their `last_checked_at`; what another pass has taken,
 * or has just looked at, is passed over.
 */
export function takeJobsToReconcile(
  on: SqlExecutor,
  { launcher, limit, restMs, openOnly }: { launcher: string; limit: number; restMs: number; openOnly: boolean },
): Promise<JobToReconcile[]> {
  return rows(
    on,
    ReconcileRow,
    sql`
    WITH l AS MATERIALIZED (
      SELECT j.tenant_id, j.id, j.last_checked_at FROM runplane.runner_jobs j
      WHERE j.settled_at IS NULL AND j.launcher = ${launcher}::text
        AND j.last_checked_at <= (SELECT runplane.app_now() - ${restMs}::int * interval '1 millisecond')
        ${openOnly ? sql`AND (${runIsOpen} OR ${commandIsOpen})` : emptySql}
      ORDER BY j.last_checked_at, j.id LIMIT ${limit}::int FOR NO KEY UPDATE SKIP LOCKED
    ), u AS (
      UPDATE runplane.runner_jobs j SET last_checked_at = runplane.app_now() FROM l WHERE (j.tenant_id, j.id) = (l.tenant_id, l.id)
      RETURNING j.*, l.last_checked_at AS before
    )
    SELECT ${COLUMNS}, r.status::text AS "runStatus",
      (SELECT c.state::text FROM runplane.commands c WHERE c.tenant_id = j.tenant_id AND c.id = j.command_id) AS "commandState"
    FROM u j JOIN runplane.runs r ON r.tenant_id = j.tenant_id AND r.id = j.run_id
    ORDER BY j.before, j.id`,
  );
}

/** Moves the last look at unsettled jobs behind every look that there has been. */
export async function writeJobsUnchecked(on: SqlExecutor, jobs: readonly JobKey[]): Promise<void> {
  if (jobs.length === 0) return;
  await on.query(sql`
    WITH named AS (SELECT * FROM unnest(${jobs.map((job) => job.tenantId)}::text[], ${jobs.map((job) => job.jobId)}::text[]) AS n (tenant_id, id)),
    l AS MATERIALIZED (
      SELECT j.tenant_id, j.id FROM runplane.runner_jobs j JOIN named n ON (n.tenant_id, n.id) = (j.tenant_id, j.id)
      WHERE j.settled_at IS NULL ORDER BY j.tenant_id COLLATE "C", j.id COLLATE "C" FOR NO KEY UPDATE OF j
    )
    UPDATE runplane.runner_jobs j SET last_checked_at = j.created_at FROM l WHERE (j.tenant_id, j.id) = (l.tenant_id, l.id)`);
}

/** Settles the named jobs whose run and command have ended; those states are final, so the snapshot may speak of them. Gives the settled ids. */
export async function writeJobsSettled(on: SqlExecutor, jobs: readonly JobKey[]): Promise<string[]> {
  if (jobs.length === 0) return [];
  const settled = await rows(
    on,
    jobId,
    sql`
    WITH named AS (SELECT * FROM unnest(${jobs.map((job) => job.tenantId)}::text[], ${jobs.map((job) => job.jobId)}::text[]) AS n (tenant_id, id)),
    l AS MATERIALIZED (
      SELECT j.tenant_id, j.id FROM runplane.runner_jobs j JOIN named n ON (n.tenant_id, n.id) = (j.tenant_id, j.id)
      WHERE j.settled_at IS NULL AND NOT ${runIsOpen} AND NOT ${commandIsOpen}
      ORDER BY j.tenant_id COLLATE "C", j.id COLLATE "C" FOR NO KEY UPDATE OF j
    )
    UPDATE runplane.runner_jobs j SET settled_at = runplane.app_now(), updated_at = runplane.app_now() FROM l
    WHERE (j.tenant_id, j.id) = (l.tenant_id, l.id) AND j.settled_at IS NULL RETURNING j.id AS "id"`,
  );
  return settled.map(({ id }) => id);
}

const place = z.object({ at: column.int });

/** Which of some jobs nobody needs any more, by their places: their run has ended so long ago, or there is no such run. */
export async function findOrphans(
  on: SqlExecutor,
  jobs: readonly { readonly tenantId: string; readonly runId: string }[],
  { endedForMs }: { endedForMs: number },
): Promise<number[]> {
  if (jobs.length === 0) return [];
  const found = await rows(
    on,
    place,
    sql`
    SELECT (n.at - 1)::int AS "at"
    FROM unnest(${jobs.map((job) => job.tenantId)}::text[], ${jobs.map((job) => job.runId)}::text[]) WITH ORDINALITY AS n (tenant_id, run_id, at)
    LEFT JOIN runplane.runs r ON r.tenant_id = n.tenant_id AND r.id = n.run_id
    WHERE r.id IS NULL OR r.finished_at <= (SELECT runplane.app_now() - ${endedForMs}::int * interval '1 millisecond')
    ORDER BY n.at`,
  );
  return found.map(({ at }) => at);
}
