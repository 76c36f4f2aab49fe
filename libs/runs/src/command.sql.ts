import { COMMAND_STATES, PAGE_BYTES_MAX, type CancelRequest, type Command, type CommandState, type JsonObject } from '@runplane/contracts';
import {
  column,
  compareC,
  emptySql,
  maybeRow,
  rows,
  rowsUnder,
  sql,
  takingLock,
  type Sql,
  type SqlExecutor,
  type Tx,
} from '@runplane/database';
import { z } from 'zod';
import { ENDING_SHAPE, endingColumns, toCancel, toFailure } from './endings';
import { namedRun, type RunKey } from './run.sql';

export interface CommandKey {
  readonly tenantId: string;
  readonly commandId: string;
}

const CommandRow = z.object({
  id: column.text,
  runId: column.text,
  sessionId: column.text.nullable(),
  seq: column.int,
  type: column.text,
  payload: column.jsonObject,
  payloadHash: column.text,
  idempotencyKey: column.text.nullable(),
  targetCommandId: column.text.nullable(),
  state: column.state(COMMAND_STATES),
  ...ENDING_SHAPE,
  unchangedForMs: column.int,
  createdAt: column.time,
  updatedAt: column.time,
  acknowledgedAt: column.time.nullable(),
  finishedAt: column.time.nullable(),
});
export type CommandRow = z.infer<typeof CommandRow>;
const TenantCommandRow = CommandRow.extend({ tenantId: column.text });

const COLUMNS = sql`
  id AS "id", run_id AS "runId", session_id AS "sessionId", seq AS "seq", type AS "type", payload::text AS "payload", payload_hash AS "payloadHash",
  idempotency_key AS "idempotencyKey", target_command_id AS "targetCommandId", state::text AS "state", ${endingColumns(emptySql)},
  runplane.ms_until(runplane.app_now(), updated_at) AS "unchangedForMs",
  runplane.wire_time(created_at) AS "createdAt", runplane.wire_time(updated_at) AS "updatedAt",
  runplane.wire_time(acknowledged_at) AS "acknowledgedAt", runplane.wire_time(finished_at) AS "finishedAt"`;
const OPEN = sql`state IN ('pending', 'acknowledged')`;
const done = z.object({ id: column.text });

export function findCommand(on: SqlExecutor, { tenantId, commandId }: CommandKey): Promise<CommandRow | undefined> {
  return maybeRow(
    on,
    CommandRow,
    sql`SELECT ${COLUMNS} FROM runplane.commands WHERE tenant_id = ${tenantId}::text AND id = ${commandId}::text`,
  );
}

/** The command that holds a key in its run; turns and steers are found by session instead. */
export function findCommandOfRunByKey(on: SqlExecutor, { tenantId, runId }: RunKey, key: string): Promise<CommandRow | undefined> {
  return maybeRow(
    on,
    CommandRow,
    sql`SELECT ${COLUMNS} FROM runplane.commands WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND idempotency_key = ${key}::text`,
  );
}

/** The turn or steer that holds a key in its session, in whatever run. */
export function findCommandOfSessionByKey(
  on: SqlExecutor,
  { tenantId, sessionId }: { tenantId: string; sessionId: string },
  key: string,
): Promise<CommandRow | undefined> {
  return maybeRow(
    on,
    CommandRow,
    sql`SELECT ${COLUMNS} FROM runplane.commands WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text
          AND idempotency_key = ${key}::text AND type IN ('turn', 'steer')`,
  );
}

// A run's commands are one lock: every lock of a command is taken under its run's lock, so their order among themselves cannot deadlock;
// "by seq" keeps it readable in pg_locks.
const takingCommands = (tx: Tx, { tenantId, runId }: RunKey): void => {
  takingLock(tx, 'command', `${tenantId}/${runId}`);
};

/** Locks one command of a locked run; undefined when the run has no such command. */
export function lockCommand(tx: Tx, run: RunKey, commandId: string): Promise<CommandRow | undefined> {
  takingCommands(tx, run);
  return maybeRow(
    tx,
    CommandRow,
    sql`SELECT ${COLUMNS} FROM runplane.commands
        WHERE tenant_id = ${run.tenantId}::text AND id = ${commandId}::text AND run_id = ${run.runId}::text FOR NO KEY UPDATE`,
  );
}

/** Locks one command of each of several locked runs; by `<tenant>/<command>`, without those that are no command of their run. */
export async function lockCommandsOf(tx: Tx, named: readonly (RunKey & CommandKey)[]): Promise<ReadonlyMap<string, CommandRow>> {
  for (const run of named.toSorted((a, b) => compareC(`${a.tenantId}/${a.runId}`, `${b.tenantId}/${b.runId}`))) takingCommands(tx, run);
  const found = await rows(
    tx,
    TenantCommandRow,
    sql`WITH l AS MATERIALIZED (
          SELECT k.* FROM unnest(${named.map((w) => w.tenantId)}::text[], ${named.map((w) => w.runId)}::text[], ${named.map((w) => w.commandId)}::text[])
            AS w (tenant_id, run_id, id)
          JOIN runplane.commands k ON k.tenant_id = w.tenant_id AND k.run_id = w.run_id AND k.id = w.id
          ORDER BY k.run_id COLLATE "C" FOR NO KEY UPDATE OF k
        )
        SELECT tenant_id AS "tenantId", ${COLUMNS} FROM l`,
  );
  return new Map(found.map((command) => [`${command.tenantId}/${command.id}`, command]));
}

/** Commands by `<tenant>/<command>`. */
export async function listCommandsById(on: SqlExecutor, keys: readonly CommandKey[]): Promise<ReadonlyMap<string, CommandRow>> {
  const found = await rows(
    on,
    TenantCommandRow,
    sql`SELECT tenant_id AS "tenantId", ${COLUMNS} FROM (
          SELECT k.* FROM unnest(${keys.map((key) => key.tenantId)}::text[], ${keys.map((key) => key.commandId)}::text[]) AS w (tenant_id, id)
          JOIN runplane.commands k ON k.tenant_id = w.tenant_id AND k.id = w.id
        ) named`,
  );
  return new Map(found.map((command) => [`${command.tenantId}/${command.id}`, command]));
}

/** Locks the open commands of a locked run, by seq. */
export function lockOpenCommands(tx: Tx, run: RunKey): Promise<CommandRow[]> {
  takingCommands(tx, run);
  return rows(
    tx,
    CommandRow,
    sql`SELECT ${COLUMNS} FROM runplane.commands
        WHERE tenant_id = ${run.tenantId}::text AND run_id = ${run.runId}::text AND ${OPEN} ORDER BY seq FOR NO KEY UPDATE`,
  );
}

export interface NewCommand extends RunKey {
  readonly commandId: string;
  readonly sessionId: string | null;
  readonly type: string;
  readonly payload: JsonObject;
  readonly payloadHash: string;
  readonly hashVersion: number;
  readonly idempotencyKey: string | null;
  readonly targetCommandId: string | null;
}

/** Inserts the next command of a locked run; its number comes from the run's counter. */
export async function insertCommand(tx: Tx, command: NewCommand): Promise<void> {
  const inserted = await rows(
    tx,
    done,
    sql`
    WITH r AS (
      UPDATE runplane.runs SET last_command_seq = last_command_seq + 1
      WHERE tenant_id = ${command.tenantId}::text AND id = ${command.runId}::text RETURNING last_command_seq
    )
    INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, target_command_id)
    SELECT ${command.tenantId}::text, ${command.commandId}::text, ${command.runId}::text, ${command.sessionId}::text, r.last_command_seq,
      ${command.type}::text, ${JSON.stringify(command.payload)}::json, ${command.payloadHash}::text, ${command.hashVersion}::smallint,
      ${command.idempotencyKey}::text, ${command.targetCommandId}::text
    FROM r RETURNING id AS "id"`,
  );
  if (inserted.length !== 1) throw new Error(`command ${command.commandId} was not inserted: its run is missing`);
}

/** Marks locked pending commands as taken by their runners. */
export async function writeCommandsAcknowledged(tx: Tx, keys: readonly CommandKey[]): Promise<void> {
  await exactly(
    keys.length,
    tx,
    sql`UPDATE runplane.commands c SET state = 'acknowledged', acknowledged_at = runplane.app_now(), updated_at = runplane.app_now()
        FROM unnest(${keys.map((key) => key.tenantId)}::text[], ${keys.map((key) => key.commandId)}::text[]) AS w (tenant_id, id)
        WHERE c.tenant_id = w.tenant_id AND c.id = w.id AND c.state = 'pending' RETURNING c.id AS "id"`,
  );
}

export interface CommandEnding {
  readonly commandId: string;
  readonly state: Extract<CommandState, 'completed' | 'failed' | 'cancelled'>;
  readonly failureKind: string | null;
  readonly failureMessage: string | null;
}

/** Closes locked open commands, each with its own ending, in one statement. */
export async function writeCommandsClosed(tx: Tx, tenantId: string, endings: readonly CommandEnding[]): Promise<void> {
  if (endings.length === 0) return;
  await exactly(
    endings.length,
    tx,
    sql`UPDATE runplane.commands c SET state = e.state::runplane.command_state, failure_kind = e.failure_kind, failure_message = e.failure_message,
          cancel_deadline_at = NULL, finished_at = runplane.app_now(), updated_at = runplane.app_now()
        FROM unnest(${endings.map((e) => e.commandId)}::text[], ${endings.map((e) => e.state)}::text[], ${endings.map((e) => e.failureKind)}::text[],
          ${endings.map((e) => e.failureMessage)}::text[]) AS e (id, state, failure_kind, failure_message)
        WHERE c.tenant_id = ${tenantId}::text AND c.id = e.id AND c.${OPEN} RETURNING c.id AS "id"`,
  );
}

/** Gives acknowledged commands of a requeued run back, for its next runner. */
export async function writeCommandsPending(tx: Tx, { tenantId, runId }: RunKey): Promise<void> {
  takingCommands(tx, { tenantId, runId });
  await tx.query(
    sql`UPDATE runplane.commands SET state = 'pending', acknowledged_at = NULL, updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND state = 'acknowledged'`,
  );
}

/** Notes on a locked open command that it is to be cancelled, and by when. */
export async function writeCommandCancelRequested(
  tx: Tx,
  { tenantId, commandId, request, graceMs }: CommandKey & { request: Pick<CancelRequest, 'id' | 'epoch' | 'reason'>; graceMs: number },
): Promise<void> {
  await exactly(
    1,
    tx,
    sql`UPDATE runplane.commands SET cancel_epoch = ${request.epoch}::int, cancel_request_id = ${request.id}::text, cancel_requested_at = runplane.app_now(),
          cancel_reason = ${request.reason}::text, cancel_deadline_at = runplane.app_now() + ${graceMs}::int * interval '1 millisecond', updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND id = ${commandId}::text AND ${OPEN} RETURNING id AS "id"`,
  );
}

/** Copies a cancel request to the open commands that end with their run by it; a command that was asked before keeps its own. */
export async function writeCommandsCancelledWithRun(
  tx: Tx,
  { tenantId, runId }: RunKey,
  cancel: { requestId: string; epoch: number; reason: string },
): Promise<void> {
  takingCommands(tx, { tenantId, runId });
  await tx.query(
    sql`UPDATE runplane.commands SET cancel_epoch = ${cancel.epoch}::int, cancel_request_id = ${cancel.requestId}::text,
          cancel_requested_at = runplane.app_now(), cancel_reason = ${cancel.reason}::text
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND cancel_request_id IS NULL AND ${OPEN}`,
  );
}

interface CommandPage {
  readonly afterSeq: number;
  readonly limit: number;
  readonly openOnly?: boolean;
}

const commandsAfter = ({ tenantId, runId }: RunKey, { afterSeq, limit, openOnly = false }: CommandPage): Sql => sql`
  SELECT ${COLUMNS} FROM (
    SELECT *, sum(octet_length(payload::text)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - octet_length(payload::text) AS bytes_before
    FROM runplane.commands
    WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND seq > ${afterSeq}::int AND (NOT ${openOnly}::bool OR ${OPEN})
    ORDER BY seq LIMIT ${limit}::int
  ) page
  WHERE bytes_before < ${PAGE_BYTES_MAX}::int`;

/** Commands of a run behind a number, by number; fewer than `limit` where their payloads are large. */
export async function listCommandsAfter(on: SqlExecutor, run: RunKey, page: CommandPage): Promise<Command[]> {
  return (await rows(on, CommandRow, sql`${commandsAfter(run, page)} ORDER BY seq`)).map(toCommand);
}

/** The same; undefined when there is no such run. */
export async function listCommandsOfRun(on: SqlExecutor, run: RunKey, page: CommandPage): Promise<Command[] | undefined> {
  const found = await rowsUnder(on, CommandRow, { parent: namedRun(run), list: commandsAfter(run, page), order: sql`l."seq"` });
  return found?.map(toCommand);
}

/** Commands whose cancel is overdue; the sweeper looks again under the run's lock. */
export function listOverdueCommandCancels(
  on: SqlExecutor,
  limit: number,
): Promise<{ tenantId: string; runId: string; commandId: string }[]> {
  return rows(
    on,
    z.object({ tenantId: column.text, runId: column.text, commandId: column.text }),
    sql`SELECT tenant_id AS "tenantId", run_id AS "runId", id AS "commandId" FROM runplane.commands
        WHERE cancel_deadline_at IS NOT NULL AND ${OPEN} AND cancel_deadline_at <= (SELECT runplane.app_now())
        ORDER BY cancel_deadline_at, id LIMIT ${limit}::int`,
  );
}

export function toCommand(row: CommandRow): Command {
  const { idempotencyKey } = row;
  return {
    id: row.id,
    runId: row.runId,
    sessionId: row.sessionId,
    seq: row.seq,
    type: row.type,
    payload: row.payload,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    targetCommandId: row.targetCommandId,
    state: row.state,
    failure: toFailure(row),
    cancel: toCancel(row),
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
    acknowledgedAt: row.acknowledgedAt,
    finishedAt: row.finishedAt,
  };
}

async function exactly(count: number, tx: Tx, statement: ReturnType<typeof sql>): Promise<void> {
  const written = await rows(tx, done, statement);
  if (written.length !== count) throw new Error(`a write to ${count} locked commands touched ${written.length}`);
}
