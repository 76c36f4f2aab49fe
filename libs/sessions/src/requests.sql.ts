import {
  APPROVAL_STATES,
  INPUT_STATES,
  OPEN_REQUESTS_MAX,
  type Approval,
  type InputOutcome,
  type InputRequest,
  type JsonObject,
} from '@runplane/contracts';
import { column, maybeRow, oneRow, rawSql, rows, sql, type Sql, type SqlExecutor, type StreamProbe } from '@runplane/database';
import { z } from 'zod';
import { Found, withinBytes } from './page.sql';
import { NO_SHADOW } from './rebuild/shadow-views.sql';
import type { SessionKey } from './session.sql';

// Reads of approvals and input requests. Their rows are views of the log and change only by appends, under the lock of the session's head.

export interface ApprovalKey extends SessionKey {
  readonly approvalId: string;
}
export interface InputRequestKey extends SessionKey {
  readonly requestId: string;
}

const ApprovalRow = z.object({
  approvalId: column.text,
  sessionId: column.text,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  turnId: column.text,
  stepId: column.text,
  callId: column.text,
  operationId: column.text,
  toolName: column.text,
  argumentsSummary: column.json,
  argumentsDigest: column.text.nullable(),
  reason: column.text,
  outcome: column.state(APPROVAL_STATES),
  revision: column.int,
  expiresAt: column.time,
  expiresInMs: column.int,
  createdAt: column.time,
  resolvedAt: column.time.nullable(),
  actor: column.json.nullable(),
  resolutionReason: column.text.nullable(),
});

const APPROVAL_COLUMNS = sql`a.approval_id AS "approvalId", a.session_id AS "sessionId", a.run_id AS "runId", a.command_id AS "commandId", a.turn_id AS "turnId",
  a.step_id AS "stepId", a.tool_call_id AS "callId", a.operation_id AS "operationId", a.tool_name AS "toolName", a.arguments_summary::text AS "argumentsSummary",
  a.arguments_digest AS "argumentsDigest", a.reason AS "reason", a.state::text AS "outcome", a.revision AS "revision",
  runplane.wire_time(a.expires_at) AS "expiresAt", runplane.ms_until(a.expires_at, runplane.app_now()) AS "expiresInMs",
  runplane.wire_time(a.created_at) AS "createdAt", runplane.wire_time(a.resolved_at) AS "resolvedAt", a.actor::text AS "actor",
  a.resolution_reason AS "resolutionReason"`;

function toApproval({ actor, expiresInMs, ...row }: z.infer<typeof ApprovalRow>): Approval {
  return { ...row, expiresInMs: row.outcome === 'pending' ? Math.max(0, expiresInMs) : null, actor: objectOf(actor) };
}

const InputRow = z.object({
  requestId: column.text,
  sessionId: column.text,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  turnId: column.text,
  prompt: column.text,
  inputSchema: column.json,
  state: column.state(INPUT_STATES),
  value: column.json.nullable(),
  actor: column.json.nullable(),
  reason: column.text.nullable(),
  revision: column.int,
  expiresAt: column.time,
  expiresInMs: column.int,
  createdAt: column.time,
  resolvedAt: column.time.nullable(),
});

const INPUT_COLUMNS = sql`a.request_id AS "requestId", a.session_id AS "sessionId", a.run_id AS "runId", a.command_id AS "commandId", a.turn_id AS "turnId",
  a.prompt AS "prompt", a.input_schema::text AS "inputSchema", a.state::text AS "state", a.value::text AS "value", a.actor::text AS "actor",
  a.resolution_reason AS "reason", a.revision AS "revision", runplane.wire_time(a.expires_at) AS "expiresAt",
  runplane.ms_until(a.expires_at, runplane.app_now()) AS "expiresInMs", runplane.wire_time(a.created_at) AS "createdAt",
  runplane.wire_time(a.resolved_at) AS "resolvedAt"`;

function toInputRequest({ state, actor, expiresAt, expiresInMs, ...row }: z.infer<typeof InputRow>): InputRequest {
  const isPending = state === 'pending';
  return {
    ...row,
    status: isPending ? 'pending' : 'resolved',
    outcome: isPending ? null : (state satisfies InputOutcome),
    actor: objectOf(actor),
    expiresAtMs: Date.parse(expiresAt),
    expiresInMs: isPending ? Math.max(0, expiresInMs) : null,
  };
}

const objectOf = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};

/** Of a session that is there: neither deleted nor still being copied. By the row, whatever statistics say. */
const IS_SHOWN = sql`(SELECT h.deleted_at IS NULL FROM runplane.session_heads h WHERE h.tenant_id = a.tenant_id AND h.session_id = a.session_id)`;

export async function findApproval(on: SqlExecutor, { tenantId, sessionId, approvalId }: ApprovalKey): Promise<Approval | undefined> {
  const row = await maybeRow(
    on,
    ApprovalRow,
    sql`SELECT ${APPROVAL_COLUMNS} FROM runplane.approvals a
        WHERE a.tenant_id = ${tenantId}::text AND a.session_id = ${sessionId}::text AND a.approval_id = ${approvalId}::text AND ${IS_SHOWN}`,
  );
  return row && toApproval(row);
}

export async function findInputRequest(
  on: SqlExecutor,
  { tenantId, sessionId, requestId }: InputRequestKey,
): Promise<InputRequest | undefined> {
  const row = await maybeRow(
    on,
    InputRow,
    sql`SELECT ${INPUT_COLUMNS} FROM runplane.input_requests a
        WHERE a.tenant_id = ${tenantId}::text AND a.session_id = ${sessionId}::text AND a.request_id = ${requestId}::text AND ${IS_SHOWN}`,
  );
  return row && toInputRequest(row);
}

/** The place of a row in the list of pending ones. */
export interface RequestPlace {
  readonly createdAt: string;
  readonly sessionId: string;
  readonly id: string;
}

export interface PendingPage {
  readonly tenantId: string;
  /** Absent: of every session. */
  readonly sessionId?: string | undefined;
  readonly after: RequestPlace | undefined;
  readonly limit: number;
}

interface RequestTable {
  readonly table: Sql;
  readonly id: string;
  /** Bytes of a row p. */
  readonly size: Sql;
}

/** Those that can still be decided, the oldest first, as a relation with the alias a. Both orders have an index of pending rows. */
const pendingPage = ({ tenantId, sessionId, after, limit }: PendingPage, { table, id: name, size }: RequestTable): Sql => {
  const id = rawSql(`a.${name}`);
  const orderOf = (alias: string): Sql =>
    rawSql(
      [...(sessionId === undefined ? ['created_at', 'session_id'] : ['created_at']), name].map((each) => `${alias}.${each}`).join(', '),
    );
  const behind =
    after === undefined
      ? sql``
      : sessionId === undefined
        ? sql`AND (a.created_at, a.session_id, ${id}) > (${after.createdAt}::timestamptz, ${after.sessionId}::text, ${after.id}::text)`
        : sql`AND (a.created_at, ${id}) > (${after.createdAt}::timestamptz, ${after.id}::text)`;
  const page = sql`SELECT a.* FROM ${table} a WHERE a.tenant_id = ${tenantId}::text ${sessionId === undefined ? sql`` : sql`AND a.session_id = ${sessionId}::text`}
    AND a.state = 'pending' AND a.expires_at > (SELECT runplane.app_now()) AND ${IS_SHOWN} ${behind} ORDER BY ${orderOf('a')} LIMIT ${limit}::int`;
  return sql`(SELECT * FROM ${withinBytes(page, { size, order: orderOf('p') })}) a ORDER BY ${orderOf('a')}`;
};

const APPROVALS: RequestTable = {
  table: sql`runplane.approvals`,
  id: 'approval_id',
  size: sql`octet_length(p.arguments_summary::text) + octet_length(p.tool_name) + octet_length(p.reason)`,
};
const INPUTS: RequestTable = {
  table: sql`runplane.input_requests`,
  id: 'request_id',
  size: sql`octet_length(p.prompt) + octet_length(p.input_schema::text)`,
};

const ListedApproval = ApprovalRow.extend(Found);
const ListedInput = InputRow.extend(Found);

export async function listPendingApprovalsPage(on: SqlExecutor, page: PendingPage): Promise<(Approval & { found: number })[]> {
  const found = await rows(on, ListedApproval, sql`SELECT ${APPROVAL_COLUMNS}, a.found AS "found" FROM ${pendingPage(page, APPROVALS)}`);
  return found.map(({ found: all, ...row }) => ({ ...toApproval(row), found: all }));
}

export async function listPendingInputsPage(on: SqlExecutor, page: PendingPage): Promise<(InputRequest & { found: number })[]> {
  const found = await rows(on, ListedInput, sql`SELECT ${INPUT_COLUMNS}, a.found AS "found" FROM ${pendingPage(page, INPUTS)}`);
  return found.map(({ found: all, ...row }) => ({ ...toInputRequest(row), found: all }));
}

const OpenRow = z.object({
  kind: column.state(['approval', 'input']),
  id: column.text,
  revision: column.int,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  isDue: column.bool,
});
/** A pending request as whoever ends it needs it. */
export type OpenRequestRow = z.infer<typeof OpenRow>;

export interface OpenRequestScope extends SessionKey {
  /** Of this run alone. */
  readonly runId?: string | undefined;
  /** Of this command alone. */
  readonly commandId?: string | undefined;
  /** Those alone whose time is over. */
  readonly due?: boolean | undefined;
}

/** The pending requests of a session, both kinds: as many as it may have. */
export function listOpenRequests(
  on: SqlExecutor,
  { tenantId, sessionId, runId, commandId, due = false }: OpenRequestScope,
): Promise<OpenRequestRow[]> {
  const open = (kind: Sql, table: Sql, id: Sql): Sql => sql`
    SELECT ${kind} AS kind, a.${id} AS id, a.revision, a.run_id, a.command_id, a.expires_at <= clock.now AS is_due, a.created_at
    FROM clock, ${table} a
    WHERE a.tenant_id = ${tenantId}::text AND a.session_id = ${sessionId}::text AND a.state = 'pending'
      ${runId === undefined ? sql`` : sql`AND a.run_id = ${runId}::text`} ${commandId === undefined ? sql`` : sql`AND a.command_id = ${commandId}::text`}
      ${due ? sql`AND a.expires_at <= clock.now` : sql``}`;
  return rows(
    on,
    OpenRow,
    sql`WITH clock AS MATERIALIZED (SELECT runplane.app_now() AS now)
    SELECT kind AS "kind", id AS "id", revision AS "revision", run_id AS "runId", command_id AS "commandId", is_due AS "isDue" FROM (
      ${open(sql`'approval'`, sql`runplane.approvals`, sql`approval_id`)} UNION ALL ${open(sql`'input'`, sql`runplane.input_requests`, sql`request_id`)}
    ) q ORDER BY created_at, kind, id LIMIT ${2 * OPEN_REQUESTS_MAX}::int`,
  );
}

/** Sessions with pending requests whose time is over, longest first; the sweeper looks again under the lock. A rebuild's rows are nobody's. */
export function listSessionsWithDueRequests(on: SqlExecutor, limit: number): Promise<SessionKey[]> {
  const due = (table: Sql, id: Sql): Sql => sql`
    (SELECT a.tenant_id, a.session_id, a.expires_at FROM ${table} a
     WHERE a.state = 'pending' AND a.expires_at <= (SELECT runplane.app_now()) AND ${NO_SHADOW} AND NOT EXISTS (
       SELECT FROM runplane.session_heads h WHERE h.tenant_id = a.tenant_id AND h.session_id = a.session_id AND h.deleted_at IS NOT NULL)
     ORDER BY a.expires_at, a.tenant_id, a.session_id, a.${id} LIMIT ${limit}::int)`;
  return rows(
    on,
    z.object({ tenantId: column.text, sessionId: column.text }),
    sql`SELECT tenant_id AS "tenantId", session_id AS "sessionId" FROM (
          ${due(sql`runplane.approvals`, sql`approval_id`)} UNION ALL ${due(sql`runplane.input_requests`, sql`request_id`)}
        ) due GROUP BY tenant_id, session_id ORDER BY min(expires_at), tenant_id, session_id LIMIT ${limit}::int`,
  );
}

/** The database's clock, for a time that is told in an event. */
export async function readClockMs(on: SqlExecutor): Promise<number> {
  const { now } = await oneRow(on, z.object({ now: column.time }), sql`SELECT runplane.wire_time(runplane.app_now()) AS "now"`);
  return Date.parse(now);
}

const probeOf = (kind: string, table: Sql, id: Sql): StreamProbe => ({
  kind,
  async versionsOf(on, keys) {
    const parts = keys.map((key) => JSON.parse(key) as [string, string, string]);
    const found = await rows(
      on,
      z.object({ at: column.int, state: column.text }),
      sql`SELECT w.at::int AS "at", a.state::text AS "state"
          FROM unnest(${parts.map(([tenantId]) => tenantId)}::text[], ${parts.map(([, sessionId]) => sessionId)}::text[], ${parts.map(([, , each]) => each)}::text[])
            WITH ORDINALITY AS w (tenant_id, session_id, id, at)
          JOIN ${table} a ON a.tenant_id = w.tenant_id AND a.session_id = w.session_id AND a.${id} = w.id`,
    );
    return new Map(found.map(({ at, state }) => [keys[at - 1] ?? '', state]));
  },
});

/** What the hub asks while somebody waits for decisions. */
export const requestProbes: readonly StreamProbe[] = [
  probeOf('approval', sql`runplane.approvals`, sql`approval_id`),
  probeOf('input', sql`runplane.input_requests`, sql`request_id`),
];
