import {
  DISPATCH_ATTEMPTS_MAX,
  DISPATCH_OUTCOMES,
  INTENT_STATES,
  type DispatchIntent,
  type DispatchOutcome,
  type JsonObject,
} from '@runplane/contracts';
import {
  claimDueSql,
  column,
  maybeRow,
  retryClaimSql,
  rows,
  rowsUnder,
  settleClaimSql,
  sql,
  takingLock,
  type ClaimTable,
  type HeldClaim,
  type Sql,
  type SqlExecutor,
  type Tx,
} from '@runplane/database';
import { z } from 'zod';
import type { CommandKey } from './command.sql';
import type { RunKey } from './run.sql';

const IntentRow = z.object({
  id: column.text,
  tenantId: column.text,
  runId: column.text,
  commandId: column.text,
  kind: column.text,
  input: column.jsonObject,
  inputHash: column.text,
  state: column.state(INTENT_STATES),
  generation: column.int,
  attempts: column.int,
  owner: column.text.nullable(),
  epoch: column.int,
  readyAt: column.time,
  lastError: column.text.nullable(),
  runnerJobId: column.text,
  dispatchOutcome: column.state(DISPATCH_OUTCOMES).nullable(),
  actualRunnerJobId: column.text.nullable(),
  activeRunnerId: column.text.nullable(),
  createdAt: column.time,
  updatedAt: column.time,
  finishedAt: column.time.nullable(),
});
export type IntentRow = z.infer<typeof IntentRow>;

const COLUMNS = sql`
  t.id AS "id", t.tenant_id AS "tenantId", t.run_id AS "runId", t.command_id AS "commandId", t.kind AS "kind", t.input::text AS "input",
  t.input_hash AS "inputHash", t.state::text AS "state", t.generation AS "generation", t.attempts AS "attempts", t.owner AS "owner", t.epoch AS "epoch",
  runplane.wire_time(t.ready_at) AS "readyAt", t.last_error AS "lastError", t.runner_job_id AS "runnerJobId",
  t.dispatch_outcome::text AS "dispatchOutcome", t.actual_runner_job_id AS "actualRunnerJobId", t.active_runner_id AS "activeRunnerId",
  runplane.wire_time(t.created_at) AS "createdAt", runplane.wire_time(t.updated_at) AS "updatedAt", runplane.wire_time(t.finished_at) AS "finishedAt"`;
const OPEN = sql`t.state IN ('pending', 'dispatching', 'retry')`;

const TABLE: ClaimTable = {
  table: 'runplane.dispatch_intents',
  key: ['tenant_id', 'id'],
  stateColumn: 'state',
  stateType: 'runplane.intent_state',
  openStates: ['pending', 'retry'],
  claimedState: 'dispatching',
  attemptsMax: DISPATCH_ATTEMPTS_MAX,
};

const done = z.object({ id: column.text });

/** A dispatcher's hold on an intent. */
export interface IntentClaim extends RunKey {
  readonly intentId: string;
  readonly commandId: string;
  readonly owner: string;
  readonly epoch: number;
}
const held = ({ tenantId, intentId, owner, epoch }: IntentClaim): HeldClaim => ({ key: [tenantId, intentId], owner, epoch });

const newestOf = ({ tenantId, commandId }: CommandKey): Sql => sql`
  SELECT ${COLUMNS} FROM runplane.dispatch_intents t
  WHERE t.tenant_id = ${tenantId}::text AND t.command_id = ${commandId}::text ORDER BY t.generation DESC LIMIT 1`;

/** The newest intent of a command. */
export function findIntent(on: SqlExecutor, command: CommandKey): Promise<IntentRow | undefined> {
  return maybeRow(on, IntentRow, newestOf(command));
}

/** The same, or null; undefined when there is no such command. */
export async function findIntentOfCommand(on: SqlExecutor, command: CommandKey): Promise<IntentRow | null | undefined> {
  const parent = sql`SELECT FROM runplane.commands WHERE tenant_id = ${command.tenantId}::text AND id = ${command.commandId}::text`;
  const found = await rowsUnder(on, IntentRow, { parent, list: newestOf(command), order: sql`l."generation"` });
  return found && (found[0] ?? null);
}

/** Whether the run was ever dispatched. */
export async function hasIntents(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<boolean> {
  const found = await rows(
    on,
    done,
    sql`SELECT t.id AS "id" FROM runplane.dispatch_intents t WHERE t.tenant_id = ${tenantId}::text AND t.run_id = ${runId}::text LIMIT 1`,
  );
  return found.length > 0;
}

const LaunchRow = z.object({
  intentId: column.text,
  commandId: column.text,
  state: column.state(INTENT_STATES),
  jobId: column.text.nullable(),
  isLost: column.bool,
});
/** A runner that was, or is to be, launched for an open command; `jobId` is null where none was needed. */
export type Launch = z.infer<typeof LaunchRow>;

/** The newest launch of each open command of a locked run. */
export function listLaunches(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<Launch[]> {
  return rows(
    on,
    LaunchRow,
    sql`SELECT DISTINCT ON (c.seq) t.id AS "intentId", t.command_id AS "commandId", t.state::text AS "state",
          CASE WHEN t.state = 'dispatched' THEN t.actual_runner_job_id ELSE t.runner_job_id END AS "jobId", coalesce(j.result ? 'lost', false) AS "isLost"
        FROM runplane.dispatch_intents t
        JOIN runplane.commands c ON c.tenant_id = t.tenant_id AND c.id = t.command_id AND c.state IN ('pending', 'acknowledged')
        LEFT JOIN runplane.runner_jobs j ON j.tenant_id = t.tenant_id AND j.id = t.actual_runner_job_id
        WHERE t.tenant_id = ${tenantId}::text AND t.run_id = ${runId}::text ORDER BY c.seq, t.generation DESC`,
  );
}

export interface NewIntent extends RunKey, CommandKey {
  readonly intentId: string;
  readonly kind: string;
  readonly input: JsonObject;
  readonly inputHash: string;
  readonly hashVersion: number;
  /** Planned now, so that a repeated launch finds its first try. */
  readonly runnerJobId: string;
}

/** Inserts the next intent of a command of a locked run. */
export async function insertIntent(tx: Tx, intent: NewIntent): Promise<void> {
  takingLock(tx, 'intent', `${intent.tenantId}/${intent.runId}`);
  await tx.query(
    sql`
    INSERT INTO runplane.dispatch_intents (tenant_id, id, run_id, command_id, kind, input, input_hash, hash_version, generation, runner_job_id)
    SELECT ${intent.tenantId}::text, ${intent.intentId}::text, ${intent.runId}::text, ${intent.commandId}::text, ${intent.kind}::text,
      ${JSON.stringify(intent.input)}::json, ${intent.inputHash}::text, ${intent.hashVersion}::smallint, coalesce(max(generation), 0) + 1, ${intent.runnerJobId}::text
    FROM runplane.dispatch_intents WHERE tenant_id = ${intent.tenantId}::text AND command_id = ${intent.commandId}::text`,
  );
  tx.changed('dispatch');
}

/** Ends the open intents of a locked run, or of one of its commands; the dispatcher that holds one finds its claim gone. */
export async function cancelOpenIntents(
  tx: Tx,
  { tenantId, runId }: RunKey,
  { commandId, reason }: { commandId: string | null; reason: string },
): Promise<void> {
  takingLock(tx, 'intent', `${tenantId}/${runId}`);
  await tx.query(
    sql`UPDATE runplane.dispatch_intents t SET state = 'cancelled', owner = NULL, expires_at = NULL, epoch = t.epoch + 1, last_error = ${reason}::text,
          finished_at = runplane.app_now(), updated_at = runplane.app_now()
        WHERE t.tenant_id = ${tenantId}::text AND t.run_id = ${runId}::text AND (${commandId}::text IS NULL OR t.command_id = ${commandId}::text) AND ${OPEN}`,
  );
}

/** Locks the open intents of a locked run, for a transaction that goes on to locks of a higher rank before it ends them. */
export async function lockOpenIntents(tx: Tx, { tenantId, runId }: RunKey): Promise<{ isAnyOpen: boolean }> {
  takingLock(tx, 'intent', `${tenantId}/${runId}`);
  const open = await rows(
    tx,
    done,
    sql`SELECT t.id AS "id" FROM runplane.dispatch_intents t WHERE t.tenant_id = ${tenantId}::text AND t.run_id = ${runId}::text AND ${OPEN}
        ORDER BY t.id COLLATE "C" FOR NO KEY UPDATE`,
  );
  return { isAnyOpen: open.length > 0 };
}

/** Claims due intents; somebody else's locked ones are passed over. */
export function claimDueIntents(on: SqlExecutor, claim: { owner: string; leaseMs: number; limit: number }): Promise<IntentRow[]> {
  return rows(on, IntentRow, claimDueSql(TABLE, { ...claim, orderBy: sql`ready_at, id`, returning: COLUMNS }));
}

/** Intents that were claimed as often as they may be, and whose last dispatcher died with them. */
export function listExhaustedIntents(on: SqlExecutor, limit: number): Promise<IntentRow[]> {
  return rows(
    on,
    IntentRow,
    sql`SELECT ${COLUMNS} FROM runplane.dispatch_intents t
        WHERE ${OPEN} AND t.ready_at <= (SELECT runplane.app_now()) AND t.attempts >= ${DISPATCH_ATTEMPTS_MAX}::int
        ORDER BY t.ready_at, t.id LIMIT ${limit}::int`,
  );
}

const takingIntents = (tx: Tx, { tenantId, runId }: RunKey): void => {
  takingLock(tx, 'intent', `${tenantId}/${runId}`);
};

/** Settles a held intent as dispatched. False: the claim is over. */
export async function writeIntentDispatched(
  tx: Tx,
  claim: IntentClaim,
  { outcome, runnerJobId, activeRunnerId }: { outcome: DispatchOutcome; runnerJobId: string | null; activeRunnerId: string | null },
): Promise<boolean> {
  takingIntents(tx, claim);
  const set = sql`state = 'dispatched', dispatch_outcome = ${outcome}::text::runplane.dispatch_outcome, actual_runner_job_id = ${runnerJobId}::text,
    active_runner_id = ${activeRunnerId}::text, last_error = NULL, dispatched_at = held.now, finished_at = held.now, updated_at = held.now`;
  return (await rows(tx, done, settleClaimSql(TABLE, held(claim), { set, returning: sql`t.id AS "id"` }))).length === 1;
}

/** Gives a held intent back, due after a delay. False: the claim is over. */
export async function writeIntentRetry(
  tx: Tx,
  claim: IntentClaim,
  { delayMs, lastError }: { delayMs: number; lastError: string },
): Promise<boolean> {
  takingIntents(tx, claim);
  const statement = retryClaimSql(TABLE, held(claim), {
    state: 'retry',
    delayMs,
    lastError,
    set: sql`updated_at = held.now`,
    returning: sql`t.id AS "id"`,
  });
  return (await rows(tx, done, statement)).length === 1;
}

/** Gives a held intent back to wait in line, its attempt uncounted, for as long as it has waited, within 1 to 15 s, spread. False: the claim is over. */
export async function writeIntentWaiting(
  tx: Tx,
  claim: IntentClaim,
  { lastError, spread }: { lastError: string; spread: number },
): Promise<boolean> {
  takingIntents(tx, claim);
  const percent = 50 + Math.round(50 * spread);
  const set = sql`state = 'retry', attempts = t.attempts - 1, epoch = t.epoch + 1, last_error = ${lastError}::text, updated_at = held.now,
    ready_at = held.now + greatest(least(held.now - t.created_at, interval '15 s') * ${percent}::int / 100, interval '1 s')`;
  return (await rows(tx, done, settleClaimSql(TABLE, held(claim), { set, returning: sql`t.id AS "id"` }))).length === 1;
}

/** Ends a held intent as failed. False: the claim is over. */
export async function writeIntentFailed(tx: Tx, claim: IntentClaim, lastError: string): Promise<boolean> {
  takingIntents(tx, claim);
  const set = sql`state = 'failed', last_error = ${lastError}::text, finished_at = held.now, updated_at = held.now`;
  return (await rows(tx, done, settleClaimSql(TABLE, held(claim), { set, returning: sql`t.id AS "id"` }))).length === 1;
}

/** Ends an exhausted intent of a locked run as failed, whoever held it last. False: it is no longer exhausted and due. */
export async function writeExhaustedIntentFailed(tx: Tx, run: RunKey, intentId: string, lastError: string): Promise<boolean> {
  takingIntents(tx, run);
  const written = await rows(
    tx,
    done,
    sql`WITH l AS MATERIALIZED (
          SELECT tenant_id, id, ready_at FROM runplane.dispatch_intents t
          WHERE t.tenant_id = ${run.tenantId}::text AND t.id = ${intentId}::text AND ${OPEN} AND t.attempts >= ${DISPATCH_ATTEMPTS_MAX}::int FOR NO KEY UPDATE
        ), due AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM l)
        UPDATE runplane.dispatch_intents t SET state = 'failed', owner = NULL, expires_at = NULL, epoch = t.epoch + 1, last_error = ${lastError}::text,
          finished_at = due.now, updated_at = due.now
        FROM due WHERE (t.tenant_id, t.id) = (due.tenant_id, due.id) AND due.ready_at <= due.now RETURNING t.id AS "id"`,
  );
  return written.length === 1;
}

export function toIntent({ tenantId: _tenant, inputHash: _hash, epoch: _epoch, ...intent }: IntentRow): DispatchIntent {
  return intent;
}
