import { CANCEL_STAGES, CANCEL_TARGET_KINDS, type CancelRequest, type CancelStage, type CancelTargetKind } from '@runplane/contracts';
import { column, emptySql, maybeRow, oneRow, rows, rowsUnder, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import type { SessionKey } from '@runplane/sessions';
import { z } from 'zod';
import { namedRun, type RunKey } from './run.sql';

const RequestRow: z.ZodType<CancelRequest> = z.object({
  id: column.text,
  targetKind: column.state(CANCEL_TARGET_KINDS),
  targetId: column.text,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  sessionId: column.text.nullable(),
  taskId: column.text.nullable(),
  reason: column.text,
  requestedBy: column.text.nullable(),
  epoch: column.int,
  stage: column.state(CANCEL_STAGES),
  createdAt: column.time,
  updatedAt: column.time,
});

const COLUMNS = sql`id AS "id", target_kind::text AS "targetKind", target_id AS "targetId", run_id AS "runId", command_id AS "commandId",
  session_id AS "sessionId", task_id AS "taskId", reason AS "reason", requested_by AS "requestedBy", epoch AS "epoch", stage::text AS "stage",
  runplane.wire_time(created_at) AS "createdAt", runplane.wire_time(updated_at) AS "updatedAt"`;

export interface NewCancelRequest extends RunKey {
  readonly requestId: string;
  readonly targetKind: CancelTargetKind;
  readonly targetId: string;
  readonly commandId: string | null;
  readonly sessionId: string | null;
  readonly taskId?: string | null;
  readonly reason: string;
  readonly requestedBy: string | null;
  readonly epoch: number;
}

/** Inserts a cancel request at its first stage. Its run is locked, which orders all writes to it. */
export function insertCancelRequest(tx: Tx, request: NewCancelRequest): Promise<CancelRequest> {
  return oneRow(
    tx,
    RequestRow,
    sql`INSERT INTO runplane.cancel_requests (tenant_id, id, target_kind, target_id, run_id, command_id, session_id, task_id, reason, requested_by, epoch, stage)
        VALUES (${request.tenantId}::text, ${request.requestId}::text, ${request.targetKind}::text::runplane.cancel_target_kind, ${request.targetId}::text,
          ${request.runId}::text, ${request.commandId}::text, ${request.sessionId}::text, ${request.taskId ?? null}::text, ${request.reason}::text, ${request.requestedBy}::text,
          ${request.epoch}::int, 'accepted')
        RETURNING ${COLUMNS}`,
  );
}

/** Moves requests on to a stage. Their runs are locked. */
export function writeCancelStage(tx: Tx, tenantId: string, requestIds: readonly string[], stage: CancelStage): Promise<CancelRequest[]> {
  return rows(
    tx,
    RequestRow,
    sql`UPDATE runplane.cancel_requests SET stage = ${stage}::text::runplane.cancel_stage, updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND id = ANY (${[...requestIds]}::text[]) RETURNING ${COLUMNS}`,
  );
}

export function findCancelRequest(
  on: SqlExecutor,
  { tenantId, requestId }: { tenantId: string; requestId: string },
): Promise<CancelRequest | undefined> {
  return maybeRow(
    on,
    RequestRow,
    sql`SELECT ${COLUMNS} FROM runplane.cancel_requests WHERE tenant_id = ${tenantId}::text AND id = ${requestId}::text`,
  );
}

/** A place in a list of requests. */
export interface CancelRequestPlace {
  readonly createdAt: string;
  readonly id: string;
}
interface Page {
  readonly after: CancelRequestPlace | undefined;
  readonly limit: number;
}
const placeOf = ({ createdAt, id }: CancelRequestPlace): Sql => sql`(${createdAt}::timestamptz, ${id}::text)`;

/** One page of the requests that concern a session, newest first; undefined when there is no such session. */
export function listCancelRequestsOfSession(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  { after, limit }: Page,
): Promise<CancelRequest[] | undefined> {
  return rowsUnder(on, RequestRow, {
    parent: sql`SELECT FROM runplane.sessions WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`,
    list: sql`SELECT ${COLUMNS} FROM runplane.cancel_requests WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text
        ${after === undefined ? emptySql : sql`AND (created_at, id) < ${placeOf(after)}`} ORDER BY created_at DESC, id DESC LIMIT ${limit}::int`,
    order: sql`l."createdAt" DESC, l."id" DESC`,
  });
}

/** One page of the requests that concern a run, oldest first; undefined when there is no such run. */
export function listCancelRequestsOfRun(on: SqlExecutor, run: RunKey, { after, limit }: Page): Promise<CancelRequest[] | undefined> {
  return rowsUnder(on, RequestRow, {
    parent: namedRun(run),
    list: sql`SELECT ${COLUMNS} FROM runplane.cancel_requests WHERE tenant_id = ${run.tenantId}::text AND run_id = ${run.runId}::text
        ${after === undefined ? emptySql : sql`AND (created_at, id) > ${placeOf(after)}`} ORDER BY created_at, id LIMIT ${limit}::int`,
    order: sql`l."createdAt", l."id"`,
  });
}
