import {
  QUEUE_ATTEMPT_STATES,
  QUEUE_TASK_STATES,
  sessionPathOf,
  type JsonObject,
  type QueueAttemptRef,
  type QueueTask,
  type QueueTaskState,
} from '@runplane/contracts';
import { column, maybeRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';

/** A queue task's key. */
export interface TaskKey {
  readonly tenantId: string;
  readonly taskId: string;
}

// The newest attempt comes with its task: read by the key that the task names, never searched for.
const Latest = z.object({
  latestIndex: column.int.nullable(),
  latestState: column.state(QUEUE_ATTEMPT_STATES).nullable(),
  latestRunId: column.text.nullable(),
  latestCommandId: column.text.nullable(),
  latestJobId: column.text.nullable(),
  latestSessionId: column.text.nullable(),
  latestFailureKind: column.text.nullable(),
  latestFailureMessage: column.text.nullable(),
});

export const SummaryRow = z
  .object({
    id: column.text,
    projectId: column.text,
    queue: column.text,
    lane: column.text,
    title: column.text,
    priority: column.int,
    state: column.state(QUEUE_TASK_STATES),
    version: column.int8,
    changedTx: column.bigint,
    backendProfile: column.text.nullable(),
    sessionId: column.text.nullable(),
    metadata: column.jsonObject,
    holder: column.text.nullable(),
    leaseRemainingMs: column.int.nullable(),
    attempts: column.int,
    maxAttempts: column.int,
    attemptId: column.text.nullable(),
    lastError: column.text.nullable(),
    runAt: column.time.nullable(),
    readyInMs: column.int.nullable(),
    createdAt: column.time,
    updatedAt: column.time,
    endedAt: column.time.nullable(),
    cancelledAt: column.time.nullable(),
    cancelReason: column.text.nullable(),
  })
  .extend(Latest.shape);
export type SummaryRow = z.infer<typeof SummaryRow>;

export const TaskRow = SummaryRow.extend({
  tenantId: column.text,
  epoch: column.int,
  places: column.int,
  lastRetryIndex: column.int,
  providerId: column.text.nullable(),
  workspaceRef: column.jsonObject.nullable(),
  sessionRef: column.jsonObject.nullable(),
  executionPolicy: column.jsonObject.nullable(),
  resourceBundleRef: column.jsonObject.nullable(),
  payload: column.jsonObject,
  payloadHash: column.text,
  references: column.json.pipe(z.array(z.custom<JsonObject>())),
  idempotencyKey: column.text.nullable(),
});
export type TaskRow = z.infer<typeof TaskRow>;

/** Needs `t`, a task, `a`, its newest attempt or nothing, and `now`. */
export const summaryColumns = (now: Sql): Sql => sql`
  t.id AS "id", t.project_id AS "projectId", t.queue AS "queue", t.lane AS "lane", t.title AS "title", t.priority AS "priority", t.state::text AS "state",
  t.version::text AS "version", t.changed_tx::text AS "changedTx", t.backend_profile AS "backendProfile", t.session_id AS "sessionId",
  t.metadata::text AS "metadata", t.owner AS "holder", runplane.ms_until(t.expires_at, ${now}) AS "leaseRemainingMs", t.attempts AS "attempts",
  t.max_attempts AS "maxAttempts", t.attempt_id AS "attemptId", t.last_error AS "lastError", runplane.wire_time(t.run_at) AS "runAt",
  CASE WHEN t.state = 'pending' AND NOT t.due THEN greatest(runplane.ms_until(t.ready_at, ${now}), 0) END AS "readyInMs",
  runplane.wire_time(t.created_at) AS "createdAt", runplane.wire_time(t.updated_at) AS "updatedAt", runplane.wire_time(t.ended_at) AS "endedAt",
  runplane.wire_time(t.cancelled_at) AS "cancelledAt", t.cancel_reason AS "cancelReason",
  a.retry_index AS "latestIndex", a.state::text AS "latestState", a.run_id AS "latestRunId", a.command_id AS "latestCommandId",
  a.runner_job_id AS "latestJobId", a.session_id AS "latestSessionId", a.failure_kind AS "latestFailureKind", a.failure_message AS "latestFailureMessage"`;

const COLUMNS = sql`${summaryColumns(sql`c.now`)}, t.tenant_id AS "tenantId", t.epoch AS "epoch", t.places::int AS "places",
  t.last_retry_index AS "lastRetryIndex", t.provider_id AS "providerId", t.workspace_ref::text AS "workspaceRef", t.session_ref::text AS "sessionRef",
  t.execution_policy::text AS "executionPolicy", t.resource_bundle_ref::text AS "resourceBundleRef", t.payload::text AS "payload",
  t.payload_hash AS "payloadHash", t.task_references::text AS "references", t.idempotency_key AS "idempotencyKey"`;

/** The newest attempt of each task `t`. */
export const latestAttempt = sql`LEFT JOIN LATERAL (
    SELECT x.* FROM runplane.queue_attempts_all x WHERE x.tenant_id = t.tenant_id AND x.task_id = t.id AND x.attempt_id = t.attempt_id
    ORDER BY x.retry_index DESC LIMIT 1
  ) a ON true`;

export function toAttemptRef(row: SummaryRow): QueueAttemptRef | null {
  if (row.attemptId === null || row.latestIndex === null || row.latestState === null) return null;
  return {
    attemptId: row.attemptId,
    retryIndex: row.latestIndex,
    state: row.latestState,
    runId: row.latestRunId,
    commandId: row.latestCommandId,
    runnerJobId: row.latestJobId,
    sessionId: row.latestSessionId,
    sessionPath: row.latestSessionId === null ? null : sessionPathOf(row.latestSessionId),
    failure: row.latestFailureKind === null ? null : { kind: row.latestFailureKind, message: row.latestFailureMessage },
  };
}

export function toTask(row: TaskRow): QueueTask {
  const { places: _, lastRetryIndex: __, changedTx: ___, attemptId: ____, ...task } = row;
  return {
    ...withoutLatest(task),
    sessionPath: row.sessionId === null ? null : sessionPathOf(row.sessionId),
    latestAttempt: toAttemptRef(row),
  };
}

type LatestColumn = keyof z.infer<typeof Latest>;

/** The task without the columns of its newest attempt, which goes out as `latestAttempt`. */
export function withoutLatest<T extends z.infer<typeof Latest>>(row: T): Omit<T, LatestColumn> {
  const {
    latestIndex: _a,
    latestState: _b,
    latestRunId: _c,
    latestCommandId: _d,
    latestJobId: _e,
    latestSessionId: _f,
    latestFailureKind: _g,
    latestFailureMessage: _h,
    ...rest
  } = row;
  return rest;
}

/** Reads a task without a lock. */
export function findTask(on: SqlExecutor, { tenantId, taskId }: TaskKey): Promise<TaskRow | undefined> {
  return maybeRow(
    on,
    TaskRow,
    sql`WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now)
        SELECT ${COLUMNS} FROM c, runplane.queue_tasks t ${latestAttempt} WHERE t.tenant_id = ${tenantId}::text AND t.id = ${taskId}::text`,
  );
}

/** Locks a task until the end of the transaction, and reads it by the clock after the lock. Lanes whose counts will change are locked before. */
export async function lockTask(tx: Tx, { tenantId, taskId }: TaskKey): Promise<TaskRow | undefined> {
  takingLock(tx, 'queueTask', `${tenantId}/${taskId}`);
  const locked = await rows(
    tx,
    z.object({ done: column.int }),
    sql`SELECT 1 AS "done" FROM runplane.queue_tasks WHERE tenant_id = ${tenantId}::text AND id = ${taskId}::text FOR NO KEY UPDATE`,
  );
  return locked.length === 0 ? undefined : findTask(tx, { tenantId, taskId }); // a second statement sees what the wait was for, attempts too
}

/**
 * Within a statement: the rows of `table` that lie where the rows of `locked`, which this statement has locked, were found (`row_at`); the join by place
 * comes beside it. Said by itself, since a join alone is planned as one with the whole table while that is small, and stays so while it grows.
 */
export const rowsAt = (table: Sql, locked: Sql): Sql => sql`${table}.ctid = ANY (ARRAY(SELECT row_at FROM ${locked}))`;

/** Every change of a task that a reader should see: the one place where version and place in the list of changes move. */
export const moveVersionAt = (now: Sql, tx: Sql = feedTx): Sql =>
  sql`version = t.version + 1, changed_tx = greatest(t.changed_tx, ${tx}), updated_at = ${now}`;
export const moveVersion = moveVersionAt(sql`runplane.app_now()`);

/** Changes a locked task; `set` begins a SET list. */
export async function writeTask(tx: Tx, { tenantId, taskId }: TaskKey, set: Sql): Promise<void> {
  const written = await rows(
    tx,
    z.object({ done: column.int }),
    sql`UPDATE runplane.queue_tasks t SET ${set}, ${moveVersion} WHERE t.tenant_id = ${tenantId}::text AND t.id = ${taskId}::text RETURNING 1 AS "done"`,
  );
  if (written.length !== 1) throw new Error(`queue task ${taskId}, which is locked, was not written`);
}

/** Counts a reserved retry of a locked task: no change that a reader should see, so the version stays. */
export async function writeRetryIndex(tx: Tx, { tenantId, taskId }: TaskKey, retryIndex: number): Promise<void> {
  await tx.query(
    sql`UPDATE runplane.queue_tasks SET last_retry_index = ${retryIndex}::int WHERE tenant_id = ${tenantId}::text AND id = ${taskId}::text`,
  );
}

/** The SET list of a task's end, or of its going on in another way: nobody holds it any more. */
export function endedSet(state: QueueTaskState, { lastError }: { lastError: string | null }): Sql {
  return sql`state = ${state}::text::runplane.queue_task_state, owner = NULL, expires_at = NULL, places = 0, ended_at = runplane.app_now(),
    last_error = coalesce(${lastError}::text, t.last_error)`;
}
