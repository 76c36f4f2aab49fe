import { QUEUE_ATTEMPT_STATES, sessionPathOf, type QueueAttempt, type QueueAttemptState } from '@runplane/contracts';
import { column, maybeRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { bound } from './bound.sql';
import type { TaskKey } from './task.sql';

export const AttemptRow = z.object({
  taskId: column.text,
  attemptId: column.text,
  retryIndex: column.int,
  state: column.state(QUEUE_ATTEMPT_STATES),
  idempotencyKey: column.text.nullable(),
  reason: column.text.nullable(),
  payloadHash: column.text,
  previousAttemptId: column.text.nullable(),
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  runnerJobId: column.text.nullable(),
  sessionId: column.text.nullable(),
  owner: column.text.nullable(),
  epoch: column.int.nullable(),
  reservedForMs: column.int.nullable(),
  failureKind: column.text.nullable(),
  failureMessage: column.text.nullable(),
  createdAt: column.time,
  updatedAt: column.time,
  activatedAt: column.time.nullable(),
  terminalAt: column.time.nullable(),
});
export type AttemptRow = z.infer<typeof AttemptRow>;

const COLUMNS = sql`a.task_id AS "taskId", a.attempt_id AS "attemptId", a.retry_index AS "retryIndex", a.state::text AS "state",
  a.idempotency_key AS "idempotencyKey", a.reason AS "reason", a.payload_hash AS "payloadHash", a.previous_attempt_id AS "previousAttemptId",
  a.run_id AS "runId", a.command_id AS "commandId", a.runner_job_id AS "runnerJobId", a.session_id AS "sessionId", a.owner AS "owner", a.epoch AS "epoch",
  CASE WHEN a.state = 'reserved' THEN runplane.ms_until(a.expires_at, runplane.app_now()) END AS "reservedForMs",
  a.failure_kind AS "failureKind", a.failure_message AS "failureMessage", runplane.wire_time(a.created_at) AS "createdAt",
  runplane.wire_time(a.updated_at) AS "updatedAt", runplane.wire_time(a.activated_at) AS "activatedAt", runplane.wire_time(a.terminal_at) AS "terminalAt"`;

export function toAttempt({ failureKind, failureMessage, ...row }: AttemptRow): QueueAttempt {
  return {
    ...row,
    sessionPath: row.sessionId === null ? null : sessionPathOf(row.sessionId),
    failure: failureKind === null ? null : { kind: failureKind, message: failureMessage },
  };
}

/** How an attempt is written out: as it stands, or with its end. `a` is the attempt. */
interface AttemptEnd {
  readonly state: Sql;
  readonly at: Sql;
  readonly failureKind: Sql;
  readonly failureMessage: Sql;
}
const AS_IT_STANDS: AttemptEnd = { state: sql`a.state`, at: sql`a.terminal_at`, failureKind: sql`NULL`, failureMessage: sql`NULL` };

/** Within a statement: writes out attempts of the tasks of `source` `s` (tenant_id, id) that stand in the tasks; these are to forget them. */
export const writeOut = (source: Sql, { state, at, failureKind, failureMessage }: AttemptEnd = AS_IT_STANDS): Sql => sql`
  INSERT INTO runplane.queue_attempts (tenant_id, task_id, attempt_id, retry_index, state, payload_hash, previous_attempt_id, session_id, owner, epoch, created_at,
    activated_at, updated_at, terminal_at, failure_kind, failure_message)
  SELECT a.tenant_id, a.task_id, a.attempt_id, a.retry_index, ${state}, a.payload_hash, a.previous_attempt_id, a.session_id, a.owner, a.epoch, a.created_at,
    a.activated_at, coalesce(${at}, a.updated_at), ${at}, ${failureKind}, ${failureMessage}
  FROM ${source} s CROSS JOIN LATERAL (
    SELECT x.* FROM runplane.queue_attempts_in_tasks x WHERE x.tenant_id = s.tenant_id AND x.task_id = s.id OFFSET 0
  ) a`;

/**
 * The attempts of a task that this transaction has locked, and with it all of them: newest first. One that stands in its task is written out, since whoever
 * asks is about to say more of it; for readers nothing changes by that.
 */
export async function lockAttempts(tx: Tx, { tenantId, taskId }: TaskKey): Promise<AttemptRow[]> {
  takingLock(tx, 'attempt', `${tenantId}/${taskId}`);
  await tx.query(
    sql`WITH key AS (SELECT ${tenantId}::text AS tenant_id, ${taskId}::text AS id), written AS (${writeOut(sql`key`)})
        UPDATE runplane.queue_tasks t SET attempt_since = NULL, attempt_owner = NULL
        WHERE t.tenant_id = ${tenantId}::text AND t.id = ${taskId}::text AND t.attempt_since IS NOT NULL`,
  );
  return listAttempts(tx, { tenantId, taskId, before: undefined, limit: undefined });
}

/** Attempts of a task, newest first. */
export function listAttempts(
  on: SqlExecutor,
  { tenantId, taskId, before, limit }: TaskKey & { before: number | undefined; limit: number | undefined },
): Promise<AttemptRow[]> {
  return rows(
    on,
    AttemptRow,
    sql`SELECT ${COLUMNS} FROM runplane.queue_attempts_all a
        WHERE a.tenant_id = ${tenantId}::text AND a.task_id = ${taskId}::text AND a.retry_index < ${before ?? 2_147_483_647}::int
        ORDER BY a.retry_index DESC LIMIT ${limit ?? null}::int`,
  );
}

export function findAttempt(on: SqlExecutor, { tenantId, taskId }: TaskKey, attemptId: string): Promise<AttemptRow | undefined> {
  return maybeRow(
    on,
    AttemptRow,
    sql`SELECT ${COLUMNS} FROM runplane.queue_attempts_all a
        WHERE a.tenant_id = ${tenantId}::text AND a.task_id = ${taskId}::text AND a.attempt_id = ${attemptId}::text
        ORDER BY a.retry_index DESC LIMIT 1`,
  );
}

export interface NewAttempt extends TaskKey {
  readonly attemptId: string;
  readonly retryIndex: number;
  readonly state: QueueAttemptState;
  readonly payloadHash: string;
  readonly previousAttemptId: string | null;
  readonly idempotencyKey?: string | null;
  readonly reason?: string | null;
  readonly runId?: string | null;
  readonly commandId?: string | null;
  readonly runnerJobId?: string | null;
  readonly sessionId?: string | null;
  readonly failureKind?: string | null;
  readonly failureMessage?: string | null;
  /** Of a reservation. */
  readonly reservedMs?: number | null;
}

/** Inserts an attempt of a locked task; the caller moves the task's `last_retry_index`. */
export async function insertAttempt(tx: Tx, attempt: NewAttempt): Promise<void> {
  takingLock(tx, 'attempt', `${attempt.tenantId}/${attempt.taskId}`);
  await tx.query(
    sql`INSERT INTO runplane.queue_attempts (tenant_id, task_id, attempt_id, retry_index, state, payload_hash, previous_attempt_id, idempotency_key, reason,
          run_id, command_id, runner_job_id, session_id, failure_kind, failure_message, expires_at, activated_at, terminal_at)
        SELECT ${attempt.tenantId}::text, ${attempt.taskId}::text, ${attempt.attemptId}::text, ${attempt.retryIndex}::int,
          ${attempt.state}::text::runplane.queue_attempt_state, ${attempt.payloadHash}::text, ${attempt.previousAttemptId}::text,
          ${attempt.idempotencyKey ?? null}::text, ${attempt.reason ?? null}::text, ${attempt.runId ?? null}::text, ${attempt.commandId ?? null}::text,
          ${attempt.runnerJobId ?? null}::text, ${attempt.sessionId ?? null}::text, ${attempt.failureKind ?? null}::text,
          ${attempt.failureMessage ?? null}::text, n.now + ${attempt.reservedMs ?? null}::int * interval '1 millisecond',
          CASE WHEN ${attempt.state}::text <> 'reserved' THEN n.now END, CASE WHEN ${attempt.state}::text IN ('completed', 'failed', 'blocked', 'cancelled') THEN n.now END
        FROM (SELECT runplane.app_now() AS now) n`,
  );
}

/** Changes an attempt of a locked task; `set` begins a SET list. */
export async function writeAttempt(tx: Tx, { tenantId, taskId }: TaskKey, retryIndex: number, set: Sql): Promise<void> {
  takingLock(tx, 'attempt', `${tenantId}/${taskId}`);
  const written = await rows(
    tx,
    z.object({ done: column.int }),
    sql`UPDATE runplane.queue_attempts a SET ${set}, updated_at = runplane.app_now()
        WHERE a.tenant_id = ${tenantId}::text AND a.task_id = ${taskId}::text AND a.retry_index = ${retryIndex}::int RETURNING 1 AS "done"`,
  );
  if (written.length !== 1) throw new Error(`attempt ${retryIndex} of queue task ${taskId}, which is locked, was not written`);
}

/** The SET list of an attempt that goes to a state. */
export function attemptSet(state: QueueAttemptState, failure: { kind: string; message: string | null } | null): Sql {
  return sql`state = ${state}::text::runplane.queue_attempt_state, failure_kind = ${failure?.kind ?? null}::text, failure_message = ${failure?.message ?? null}::text,
    activated_at = coalesce(a.activated_at, runplane.app_now()),
    terminal_at = CASE WHEN ${state}::text IN ('completed', 'failed', 'blocked', 'cancelled') THEN runplane.app_now() END`;
}

const EndedRow = z.object({ tenantId: column.text, taskId: column.text, attemptId: column.text, runId: column.text });

/** Running attempts whose run has ended, or was removed by retention: without a lock, looked at again under them. */
export function listAttemptsOfEndedRuns(on: SqlExecutor, limit: number): Promise<z.infer<typeof EndedRow>[]> {
  return rows(
    on,
    EndedRow,
    sql`SELECT a.tenant_id AS "tenantId", a.task_id AS "taskId", a.attempt_id AS "attemptId", a.run_id AS "runId"
        FROM runplane.queue_attempts a LEFT JOIN runplane.runs r ON r.tenant_id = a.tenant_id AND r.id = a.run_id
        WHERE a.state = 'running' AND a.run_id IS NOT NULL AND CASE WHEN r.id IS NOT NULL THEN r.finished_at IS NOT NULL
          ELSE EXISTS (SELECT FROM runplane.run_tombstones d WHERE d.tenant_id = a.tenant_id AND d.run_id = a.run_id) END
        LIMIT ${bound(limit)}`,
  );
}

const ReservedRow = z.object({ tenantId: column.text, taskId: column.text, attemptId: column.text });

/** Reservations whose time is over, longest first. */
export function listEndedReservations(on: SqlExecutor, limit: number): Promise<z.infer<typeof ReservedRow>[]> {
  return rows(
    on,
    ReservedRow,
    sql`SELECT a.tenant_id AS "tenantId", a.task_id AS "taskId", a.attempt_id AS "attemptId" FROM runplane.queue_attempts a
        WHERE a.state = 'reserved' AND a.expires_at <= (SELECT runplane.app_now()) ORDER BY a.expires_at, a.tenant_id, a.task_id LIMIT ${bound(limit)}`,
  );
}
