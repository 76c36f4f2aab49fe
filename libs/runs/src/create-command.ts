import {
  COMMAND_PAYLOAD_BYTES_MAX,
  contentHash,
  CreateCommand,
  IdempotencyKeyRequired,
  isFinalCommand,
  isFinalRun,
  newId,
  normalizeJson,
  parseInput,
  requireIdentifier,
  RunCancelling,
  RunClosed,
  SessionBusy,
  type Command,
  type DispatchIntent,
  type JsonObject,
} from '@runplane/contracts';
import { emptySql, requireTenant, sql, type Sql, type Tx } from '@runplane/database';
import { lockSession, titleOfTurn, writeTurnStarted, writeTurnSteered, type SessionRow } from '@runplane/sessions';
import { assertReceivable, lockOpenTurn, noReceivableTurn } from './active-turn';
import {
  findCommandOfRunByKey,
  findCommandOfSessionByKey,
  insertCommand,
  toCommand,
  type CommandRow,
  type NewCommand,
} from './command.sql';
import { assertSameContent } from './create-run';
import { findIntent, insertIntent, toIntent, type IntentRow } from './dispatch-intent.sql';
import { requireCommand, requireLockedRun } from './require';
import { appendServerEvents } from './run-event.sql';
import { commandStream, type RunKey, type RunRow } from './run.sql';
import { commandCreatedEvent, steerEvent, userMessageEvent } from './server-events';

/**
 * Adds a command to an open run, and a dispatch intent when the command asks for one.
 *
 * Input     command: type `turn` (the session must have no open turn; key required), `steer` (for the run's open turn, as admitSteer; key
 *           required) or a name of the caller's own; payload up to 1 MiB; idempotencyKey: per run, for turns and steers per session.
 * Returns   the command with its newest intent; `replayed: true` when the key was used before with the same content, also on an ended run.
 * Locks     run; for a turn or steer also run lease → commands → intents → session.   Writes: the same, run_events, outbox.
 * Errors    RunNotFound, RunClosed, RunCancelling, SessionBusy, NoReceivableTurn, IdempotencyKeyRequired, IdempotencyConflict.
 * Emits     user_message (turn and steer with text), command-created, steer-accepted.
 * Keeps     TURN-1, IDEM-1, LOG-2.   Source: the original's createCommand.
 */
export async function createCommand(
  tx: Tx,
  {
    tenantId,
    runId,
    command: input,
    idempotencyKey,
  }: { tenantId: string; runId: string; command: CreateCommand; idempotencyKey?: string | undefined },
): Promise<{ command: Command; intent: DispatchIntent | null; replayed: boolean }> {
  const wanted = parseCommand(input, idempotencyKey);
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const known = await findByKey(tx, run, wanted);
  if (known !== undefined) return replayOfCommand(tx, tenantId, known, wanted);
  assertRunTakesCommands(run);
  const open = isConversational(wanted.type) ? await lockOpenTurn(tx, run) : undefined; // a new intent is inserted behind the session's lock
  const session =
    isConversational(wanted.type) && run.sessionId !== null ? await lockSession(tx, { tenantId, sessionId: run.sessionId }) : undefined;
  // The session's lock orders its keys: a twin in another run of the session has committed by now, or waits.
  const twin = session && (await findByKey(tx, run, wanted));
  if (twin !== undefined) return replayOfCommand(tx, tenantId, twin, wanted);
  if (wanted.type === 'turn' && session !== undefined) assertFree(session);
  if (wanted.type === 'steer') {
    if (open === undefined) throw noReceivableTurn('no-turn', { sessionId: run.sessionId, runId });
    assertReceivable(open);
  }

  const commandId = newId('cmd');
  const row: NewCommand = {
    ...key,
    ...wanted,
    commandId,
    sessionId: run.sessionId,
    targetCommandId: wanted.type === 'steer' ? (open?.command.id ?? null) : null,
  };
  const claimDeadlineMs =
    wanted.dispatch !== null && run.status === 'pending' ? (await requireTenant(tx, tenantId)).settings.claimDeadlineMs : null;
  await writeNewCommand(tx, row, { dispatch: wanted.dispatch, session, before: [], claimDeadlineMs });
  return { ...(await readCommand(tx, tenantId, commandId)), replayed: false };
}

/** A command as its creator asks for it, checked, normalized and hashed. */
export interface WantedCommand {
  readonly type: string;
  readonly payload: JsonObject;
  readonly payloadHash: string;
  readonly hashVersion: number;
  readonly idempotencyKey: string | null;
  readonly dispatch: WantedDispatch | null;
}

export interface WantedDispatch {
  readonly kind: string;
  readonly input: JsonObject;
  readonly inputHash: string;
}

/** Errors: InvalidRequest, InvalidJson, PayloadTooLarge, IdempotencyKeyRequired, InvalidIdentifier. */
export function parseCommand(input: CreateCommand, idempotencyKey: string | undefined): WantedCommand {
  const { type, payload, dispatch } = parseInput(CreateCommand, input);
  if (idempotencyKey === undefined && (type === 'turn' || type === 'steer')) throw new IdempotencyKeyRequired();
  const normalized = normalizeJson(payload, { bytesMax: COMMAND_PAYLOAD_BYTES_MAX }).value;
  const { hash, version } = contentHash(normalized);
  const intentInput = dispatch == null ? null : normalizeJson(dispatch.input).value;
  return {
    type,
    payload: normalized,
    payloadHash: hash,
    hashVersion: version,
    idempotencyKey: idempotencyKey === undefined ? null : requireIdentifier(idempotencyKey, 'the idempotency key'),
    dispatch:
      dispatch == null || intentInput === null
        ? null
        : { kind: dispatch.kind, input: intentInput, inputHash: contentHash(intentInput).hash },
  };
}

/** The stored command for a repeated call. Errors: IdempotencyConflict when type, payload or dispatch differ from what is stored. */
async function replayOfCommand(tx: Tx, tenantId: string, known: CommandRow, wanted: WantedCommand): ReturnType<typeof createCommand> {
  assertCommandReplay(known, wanted);
  const intent = await findIntent(tx, { tenantId, commandId: known.id });
  assertDispatchReplay(known, intent, wanted);
  return { command: toCommand(known), intent: intent === undefined ? null : toIntent(intent), replayed: true };
}

/** Errors: IdempotencyConflict. */
export function assertCommandReplay(known: CommandRow, wanted: WantedCommand): void {
  assertSameContent('command', known.id, `${known.type} ${known.payloadHash}`, `${wanted.type} ${wanted.payloadHash}`);
}

/**
 * Errors: IdempotencyConflict when the stored intent was asked for with another input, or not at all. A command that has ended may have lost its
 * intent to retention: then nothing is compared.
 */
export function assertDispatchReplay(known: CommandRow, intent: IntentRow | undefined, wanted: WantedCommand): void {
  if (intent === undefined && isFinalCommand(known.state)) return;
  assertSameContent('command', known.id, intent?.inputHash ?? 'not dispatched', wanted.dispatch?.inputHash ?? 'not dispatched');
}

function assertRunTakesCommands(run: RunRow): void {
  if (isFinalRun(run.status)) throw runClosed(run);
  if (run.status === 'cancelling')
    throw new RunCancelling(`Run ${run.id} is being cancelled and takes no new commands.`, { runId: run.id });
}

export function runClosed(run: Pick<RunRow, 'id' | 'status' | 'failureKind'>): RunClosed {
  return new RunClosed(`Run ${run.id} has ended (${run.status}).`, { runId: run.id, status: run.status, runFailureKind: run.failureKind });
}

/** Turns and steers belong to a conversation: their keys are the session's, and they show in its state. */
const isConversational = (type: string): boolean => type === 'turn' || type === 'steer';

async function findByKey(tx: Tx, run: RunRow, { type, idempotencyKey }: WantedCommand): Promise<CommandRow | undefined> {
  if (idempotencyKey === null) return undefined;
  const { tenantId, id: runId, sessionId } = run;
  if (!isConversational(type) || sessionId === null) return findCommandOfRunByKey(tx, { tenantId, runId }, idempotencyKey);
  const inSession = await findCommandOfSessionByKey(tx, { tenantId, sessionId }, idempotencyKey);
  return inSession ?? findCommandOfRunByKey(tx, { tenantId, runId }, idempotencyKey); // a command of another type may have it
}

/** Errors: SessionBusy. The unique index on open turns is only the backstop (TURN-1). */
function assertFree({ sessionId, activeRunId, activeCommandId }: SessionRow): void {
  if (activeRunId === null || activeCommandId === null) return;
  throw new SessionBusy(`Session ${sessionId} has an open turn.`, {
    sessionId,
    runId: activeRunId,
    commandId: activeCommandId,
    holder: null,
    leaseRemainingMs: null,
    staleInMs: null,
  });
}

/** Inserts a command of a locked or new run with its intent and events; a turn gets the session, a steer shows there. */
export async function writeNewCommand(
  tx: Tx,
  command: NewCommand,
  options: {
    dispatch: WantedDispatch | null;
    session: SessionRow | undefined;
    before: Parameters<typeof appendServerEvents>[2];
    /** A run that waits for its first claim gets a deadline with its dispatch. */
    claimDeadlineMs: number | null;
  },
): Promise<void> {
  const { dispatch, session, before, claimDeadlineMs } = options;
  await insertCommand(tx, command);
  if (dispatch !== null) await writeNewIntent(tx, command, dispatch);
  const events = [
    ...before,
    ...userMessageEvent(command),
    commandCreatedEvent(command.commandId, command.type),
    ...steerEvent('accepted', command.commandId, command),
  ];
  await appendServerEvents(tx, command, events, dispatch === null ? emptySql : claimDeadlineSet(claimDeadlineMs));
  tx.changed(commandStream(command));
  if (session === undefined) return;
  const { tenantId, runId, commandId } = command;
  const { sessionId } = session;
  if (command.type === 'turn') await writeTurnStarted(tx, { tenantId, sessionId, runId, commandId, title: titleOfTurn(command.payload) });
  else if (command.type === 'steer') await writeTurnSteered(tx, { tenantId, sessionId, runId, commandId });
}

/** Inserts the next intent of a command; the job's id is planned here, before anybody launches anything. */
export async function writeNewIntent(
  tx: Tx,
  { tenantId, runId, commandId }: RunKey & { commandId: string },
  dispatch: WantedDispatch,
): Promise<{ intentId: string; runnerJobId: string }> {
  const planned = { intentId: newId('intent'), runnerJobId: newId('rjob') };
  await insertIntent(tx, { tenantId, runId, commandId, ...planned, ...dispatch, hashVersion: contentHash(null).version });
  return planned;
}

/** The change of a run that starts its claim deadline; none where the run is claimed already. */
export function claimDeadlineSet(claimDeadlineMs: number | null): Sql {
  if (claimDeadlineMs === null) return emptySql;
  return sql`, claim_deadline_at = runplane.app_now() + ${claimDeadlineMs}::int * interval '1 millisecond'`;
}

export async function readCommand(
  tx: Tx,
  tenantId: string,
  commandId: string,
): Promise<{ command: Command; intent: DispatchIntent | null }> {
  const command = await requireCommand(tx, { tenantId, commandId });
  const intent = await findIntent(tx, { tenantId, commandId });
  return { command: toCommand(command), intent: intent === undefined ? null : toIntent(intent) };
}
