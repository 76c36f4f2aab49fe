import {
  RUN_STATES,
  RUNNER_LOST_POLICIES,
  type JsonObject,
  type JsonValue,
  type Partition,
  type Run,
  type RunnerLostPolicy,
} from '@runplane/contracts';
import { column, insertedRow, maybeRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Stream, type Tx } from '@runplane/database';
import { z } from 'zod';
import { ENDING_SHAPE, endingColumns, toCancel, toFailure } from './endings';

export interface RunKey {
  readonly tenantId: string;
  readonly runId: string;
}

/** Under which name the hub's waiters know a run. */
export const runStream = ({ tenantId, runId }: RunKey): Stream => `run:${tenantId}/${runId}`;
/** And what its runner waits for: new commands, and that there will be none. Apart from the log, which the runner writes itself. */
export const commandStream = ({ tenantId, runId }: RunKey): Stream => `commands:${tenantId}/${runId}`;

/** Where a run stands, as decisions and explanations look at it. */
export const STATE_SHAPE = {
  status: column.state(RUN_STATES),
  claimedBy: column.text.nullable(),
  claimEpoch: column.int,
  attempts: column.int,
  maxAttempts: column.int,
  onRunnerLost: column.state(RUNNER_LOST_POLICIES),
  claimDeadlineInMs: column.int.nullable(),
  durationDeadlineInMs: column.int.nullable(),
  unchangedForMs: column.int,
};

/** Its columns, of a run that the statement calls `r`, at a time. */
export const stateColumns = (now: Sql): Sql => sql`
  r.status::text AS "status", r.claimed_by AS "claimedBy", r.claim_epoch AS "claimEpoch", r.attempts AS "attempts", r.max_attempts AS "maxAttempts",
  r.on_runner_lost::text AS "onRunnerLost", runplane.ms_until(r.claim_deadline_at, ${now}) AS "claimDeadlineInMs",
  runplane.ms_until(r.duration_deadline_at, ${now}) AS "durationDeadlineInMs", runplane.ms_until(${now}, r.updated_at) AS "unchangedForMs"`;

const RunRow = z.object({
  tenantId: column.text,
  id: column.text,
  projectId: column.text,
  sessionId: column.text.nullable(),
  sessionRef: column.jsonObject.nullable(),
  workspaceRef: column.jsonObject,
  resourceBundleRef: column.jsonObject.nullable(),
  providerId: column.text,
  backendProfile: column.text,
  executionPolicy: column.jsonObject,
  traceSink: column.json.nullable(),
  inputHash: column.text,
  hashVersion: column.int,
  ...STATE_SHAPE,
  ...ENDING_SHAPE,
  maxDurationMs: column.int.nullable(),
  startedAt: column.time.nullable(),
  lastEventSeq: column.int8,
  lastCommandSeq: column.int,
  lastTx: column.bigint,
  partitionKey: column.text,
  shard: column.int,
  cancelFailureKind: column.text.nullable(),
  createdAt: column.time,
  updatedAt: column.time,
  finishedAt: column.time.nullable(),
  eventsPrunedAt: column.time.nullable(),
});
/** A run as its row says; the lease's end stands elsewhere. */
export type RunRow = z.infer<typeof RunRow>;

/** Of a run that the statement calls `r`. */
const COLUMNS = sql`
  r.tenant_id AS "tenantId", r.id AS "id", r.project_id AS "projectId", r.session_id AS "sessionId", r.session_ref::text AS "sessionRef",
  r.workspace_ref::text AS "workspaceRef", r.resource_bundle_ref::text AS "resourceBundleRef", r.provider_id AS "providerId",
  r.backend_profile AS "backendProfile", r.execution_policy::text AS "executionPolicy", r.trace_sink::text AS "traceSink",
  r.input_hash AS "inputHash", r.hash_version::int AS "hashVersion", ${stateColumns(sql`runplane.app_now()`)}, ${endingColumns(sql`r.`)},
  r.max_duration_ms AS "maxDurationMs", runplane.wire_time(r.started_at) AS "startedAt",
  r.last_event_seq::text AS "lastEventSeq", r.last_command_seq AS "lastCommandSeq", r.last_tx::text AS "lastTx",
  r.partition_key AS "partitionKey", r.shard::int AS "shard", r.cancel_failure_kind AS "cancelFailureKind",
  runplane.wire_time(r.created_at) AS "createdAt", runplane.wire_time(r.updated_at) AS "updatedAt", runplane.wire_time(r.finished_at) AS "finishedAt",
  runplane.wire_time(r.events_pruned_at) AS "eventsPrunedAt"`;

/** A run as the wire shows it, with the lease's end; `toRun` makes it one. */
export const ReadRow = RunRow.extend({ leaseRemainingMs: column.int.nullable() });
export const READ_COLUMNS = sql`${COLUMNS}, (SELECT runplane.ms_until(k.expires_at, runplane.app_now()) FROM runplane.run_leases k
  WHERE k.tenant_id = r.tenant_id AND k.run_id = r.id) AS "leaseRemainingMs"`;

/** Locks a run; undefined when there is none. The clock is read after the lock is held (OWN-2). */
export async function lockRun(tx: Tx, { tenantId, runId }: RunKey): Promise<RunRow | undefined> {
  takingLock(tx, 'run', `${tenantId}/${runId}`);
  const run = await maybeRow(
    tx,
    RunRow,
    sql`WITH r AS MATERIALIZED (
          SELECT * FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text FOR NO KEY UPDATE
        )
        SELECT ${COLUMNS} FROM r`,
  );
  if (run !== undefined) tx.feed.raise(run.lastTx);
  return run;
}

/**
 * Locks those of the runs that nobody else holds, and waits for none, so that it has no place in the order of locks. By `<tenant>/<run>`; a
 * run that is missing in the answer is locked, or does not exist.
 */
export async function lockFreeRuns(tx: Tx, keys: readonly RunKey[]): Promise<ReadonlyMap<string, RunRow>> {
  const found = await rows(
    tx,
    RunRow,
    sql`WITH r AS MATERIALIZED (
          SELECT r.* FROM unnest(${keys.map((key) => key.tenantId)}::text[], ${keys.map((key) => key.runId)}::text[]) AS w (tenant_id, id)
          JOIN runplane.runs r ON r.tenant_id = w.tenant_id AND r.id = w.id
          ORDER BY r.id COLLATE "C" FOR NO KEY UPDATE OF r SKIP LOCKED
        )
        SELECT ${COLUMNS} FROM r`,
  );
  return new Map(found.map((run) => [`${run.tenantId}/${run.id}`, run]));
}

/** Whether a run is there, as the parent of what lies under it (rowsUnder). */
export const namedRun = ({ tenantId, runId }: RunKey): Sql =>
  sql`SELECT FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text`;

/** Reads a run as the wire shows it, without a lock. */
export function findRun(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<Run | undefined> {
  return findRunWhere(on, sql`r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`);
}

/** The same for the one run that a condition on `r` leaves. */
export async function findRunWhere(on: SqlExecutor, condition: Sql): Promise<Run | undefined> {
  const row = await maybeRow(on, ReadRow, sql`SELECT ${READ_COLUMNS} FROM runplane.runs r WHERE ${condition}`);
  return row && toRun(row);
}

/** The run's input hash, for the replay of a reserved identity; null where retention has removed the run: its id is not used again. */
export function findRunHash(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<{ inputHash: string | null } | undefined> {
  return maybeRow(
    on,
    z.object({ inputHash: column.text.nullable() }),
    sql`SELECT input_hash AS "inputHash" FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text
        UNION ALL SELECT NULL FROM runplane.run_tombstones WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text`,
  );
}

export interface NewRun extends RunKey, Partition {
  readonly projectId: string;
  readonly sessionId: string | null;
  readonly sessionRef: JsonObject | null;
  readonly workspaceRef: JsonObject;
  readonly resourceBundleRef: JsonObject | null;
  readonly providerId: string;
  readonly backendProfile: string;
  readonly executionPolicy: JsonObject;
  readonly traceSink: JsonValue | null;
  readonly inputHash: string;
  readonly hashVersion: number;
  readonly onRunnerLost: RunnerLostPolicy;
  readonly maxAttempts: number;
  /** For filter and facet. */
  readonly workspacePath: string | null;
  readonly searchText: string;
  readonly maxDurationMs: number | null;
}

const jsonText = (value: JsonValue | null): string | null => (value === null ? null : JSON.stringify(value)); // SQL NULL, never JSON null

/** Inserts a run and what its search looks through, unless its id is taken; waits for a twin that is inserting it. False when it was there. */
export async function insertRun(tx: Tx, run: NewRun): Promise<boolean> {
  const inserted = await rows(
    tx,
    z.object({ done: column.int }),
    sql`
    WITH r AS (
    INSERT INTO runplane.runs (tenant_id, id, project_id, session_id, session_ref, workspace_ref, resource_bundle_ref, provider_id, backend_profile,
      execution_policy, trace_sink, input_hash, hash_version, on_runner_lost, max_attempts, max_duration_ms, partition_key, shard, last_tx,
      workspace_path)
    VALUES (${run.tenantId}::text, ${run.runId}::text, ${run.projectId}::text, ${run.sessionId}::text, ${jsonText(run.sessionRef)}::jsonb,
      ${JSON.stringify(run.workspaceRef)}::jsonb, ${jsonText(run.resourceBundleRef)}::jsonb, ${run.providerId}::text, ${run.backendProfile}::text,
      ${JSON.stringify(run.executionPolicy)}::jsonb, ${jsonText(run.traceSink)}::jsonb, ${run.inputHash}::text, ${run.hashVersion}::smallint,
      ${run.onRunnerLost}::text::runplane.runner_lost_policy, ${run.maxAttempts}::int, ${run.maxDurationMs}::int, ${run.partitionKey}::text, ${run.shard}::smallint,
      ${String(tx.feed.value)}::bigint, ${run.workspacePath}::text)
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING tenant_id, id
    )
    INSERT INTO runplane.run_search (tenant_id, run_id, text) SELECT tenant_id, id, ${run.searchText}::text FROM r
    RETURNING 1 AS "done"`,
  );
  if (inserted.length === 0) return false;
  for (const rank of ['run', 'command', 'intent'] as const) insertedRow(tx, rank, `${run.tenantId}/${run.runId}`);
  return true;
}

/** Puts off until when a runner must have claimed a locked run. */
export async function writeClaimDeadline(tx: Tx, { tenantId, runId }: RunKey, claimDeadlineMs: number): Promise<void> {
  await tx.query(
    sql`UPDATE runplane.runs SET claim_deadline_at = runplane.app_now() + ${claimDeadlineMs}::int * interval '1 millisecond'
        WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text`,
  );
}

const KeyRow = z.object({ tenantId: column.text, runId: column.text });

/** Runs whose cancel is overdue; the sweeper looks again under the run's lock. */
export function listOverdueRunCancels(on: SqlExecutor, limit: number): Promise<RunKey[]> {
  return rows(
    on,
    KeyRow,
    sql`SELECT tenant_id AS "tenantId", id AS "runId" FROM runplane.runs
        WHERE status = 'cancelling' AND cancel_deadline_at <= (SELECT runplane.app_now()) ORDER BY cancel_deadline_at, id LIMIT ${limit}::int`,
  );
}

/** Runs whose duration is over and that nobody has asked to stop yet; the sweeper looks again under the run's lock. */
export function listOverdueRuns(on: SqlExecutor, limit: number): Promise<RunKey[]> {
  return rows(
    on,
    KeyRow,
    sql`SELECT tenant_id AS "tenantId", id AS "runId" FROM runplane.runs
        WHERE duration_deadline_at IS NOT NULL AND finished_at IS NULL AND status <> 'cancelling' AND duration_deadline_at <= (SELECT runplane.app_now())
        ORDER BY duration_deadline_at, id LIMIT ${limit}::int`,
  );
}

/** Dispatched runs that nobody has claimed in time. */
export function listUnclaimedRuns(on: SqlExecutor, limit: number): Promise<RunKey[]> {
  return rows(
    on,
    KeyRow,
    sql`SELECT tenant_id AS "tenantId", id AS "runId" FROM runplane.runs
        WHERE status = 'pending' AND claim_deadline_at IS NOT NULL AND claim_deadline_at <= (SELECT runplane.app_now())
        ORDER BY claim_deadline_at, id LIMIT ${limit}::int`,
  );
}

export function toRun(row: z.infer<typeof ReadRow>): Run {
  return {
    id: row.id,
    tenantId: row.tenantId,
    projectId: row.projectId,
    sessionId: row.sessionId,
    sessionRef: row.sessionRef,
    workspaceRef: row.workspaceRef,
    resourceBundleRef: row.resourceBundleRef,
    providerId: row.providerId,
    backendProfile: row.backendProfile,
    executionPolicy: row.executionPolicy,
    traceSink: row.traceSink,
    status: row.status,
    failure: toFailure(row),
    onRunnerLost: row.onRunnerLost,
    maxAttempts: row.maxAttempts,
    attempts: row.attempts,
    maxDurationMs: row.maxDurationMs,
    startedAt: row.startedAt,
    durationRemainingMs: row.finishedAt !== null || row.durationDeadlineInMs === null ? null : Math.max(row.durationDeadlineInMs, 0),
    claimedBy: row.claimedBy,
    claimEpoch: row.claimEpoch,
    leaseRemainingMs: row.leaseRemainingMs,
    lastEventSeq: row.lastEventSeq,
    lastCommandSeq: row.lastCommandSeq,
    cancel: toCancel(row),
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
    finishedAt: row.finishedAt,
    eventsPrunedAt: row.eventsPrunedAt,
  };
}
