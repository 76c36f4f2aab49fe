import {
  AdmitTurn,
  isFinalCommand,
  isDomainError,
  isFinalRun,
  newId,
  parseInput,
  requireIdentifier,
  SessionBusy,
  SessionProjectionBroken,
  type AdmittedTurn,
  type TenantSettings,
} from '@runplane/contracts';
import { requireTenant, RestartTransaction, type Tx } from '@runplane/database';
import { assertBoundary, assertStorageFree, ensureSession, findSession, writeTurnEnded, type SessionRow } from '@runplane/sessions';
import { endCancelledRun } from './cancel-run';
import { closeRun } from './close-run';
import { findCommandOfSessionByKey, lockCommand, type CommandRow } from './command.sql';
import {
  assertCommandReplay,
  assertDispatchReplay,
  parseCommand,
  readCommand,
  writeNewCommand,
  writeNewIntent,
  type WantedCommand,
} from './create-command';
import { assertSameContent, inputHashOf, newRunRow, parseNewRun } from './create-run';
import { findIntent, lockOpenIntents } from './dispatch-intent.sql';
import { requireLockedCommand, requireLockedRun, requireLockedSession, requireRun } from './require';
import { appendServerEvents, phase } from './run-event.sql';
import { lockRunLease, type RunLease } from './run-lease.sql';
import { decideStaleness } from './run-decisions';
import { findRunHash, insertRun, lockRun, type RunRow } from './run.sql';
import { runCreatedEvent, staleTakeoverEvent } from './server-events';

/**
 * Admits a user turn to a session: a new run with the turn as its first command and, unless `dispatch` is null, the intent that makes a
 * runner for it. All of it or nothing. A turn whose runner is dead, or was never born, is taken over in the same transaction, so that no
 * client ever sees the session without an owner.
 *
 * Input     turn: see AdmitTurn; idempotencyKey: per session, over all its runs.
 * Returns   `created`; `replayed` (same key and content: the same run and command in their present state); `recovered` (the same, whose command had
 *           no intent: it has one now).
 * Locks     new key (session) → active run → its lease → its command → its intents → session; starts over when the active pair changed between the
 *           look and the lock.   Writes: sessions, runs, commands, intents, run_events, outbox.
 * Errors    SessionBusy (with holder and remaining lease), SessionBoundary, StorageEvicting, IdempotencyConflict, IdempotencyKeyRequired, TenantNotFound, InvalidRequest.
 * Emits     run-created, user_message, command-created; at a takeover, in the old run, session-turn-admission-stale-terminalized and its ending.
 * Repeat    safe with the key.
 * Keeps     TURN-1, IDEM-1, END-1, LOG-2, FEED-1 (the session's feed number orders its runs).   Source: the original's admitSessionTurn.
 */
export async function admitTurn(
  tx: Tx,
  { tenantId, sessionId, turn: input, idempotencyKey }: { tenantId: string; sessionId: string; turn: AdmitTurn; idempotencyKey: string },
): Promise<AdmittedTurn> {
  const turn = parseInput(AdmitTurn, input);
  const wanted: WantedTurn = {
    tenantId,
    sessionId: requireIdentifier(sessionId, 'the session id'),
    run: parseNewRun({ ...turn.run, sessionRef: { ...turn.run.sessionRef, sessionId } }),
    command: parseCommand(
      { type: 'turn', payload: turn.payload, dispatch: turn.dispatch === undefined ? {} : turn.dispatch },
      idempotencyKey,
    ),
    key: idempotencyKey,
  };
  const known = await findTurnByKey(tx, wanted);
  if (known !== undefined) return replayTurn(tx, wanted, known);

  const { settings } = await requireTenant(tx, tenantId);
  await ensureSession(tx, tenantId, { ...wanted.run.sessionRef, sessionId }, wanted.run);
  const active = await lockActiveTurn(tx, wanted);
  const session = await requireLockedSession(tx, tenantId, sessionId);
  if (session.activeRunId !== (active?.run.id ?? null) || session.activeCommandId !== (active?.command.id ?? null)) {
    throw new RestartTransaction(`the active turn of session ${sessionId} changed while it was being locked`);
  }
  // Under the session's lock no twin can be about to commit the key: what this look does not see does not exist.
  if ((await findTurnByKey(tx, wanted)) !== undefined) throw new RestartTransaction('a twin of this turn has just been admitted');
  assertBoundary(session, wanted.run);
  assertStorageFree(session);
  if (active !== undefined) await takeOver(tx, active, session, settings);
  return admitNew(tx, wanted, session, settings);
}

interface WantedTurn {
  readonly tenantId: string;
  readonly sessionId: string;
  readonly run: ReturnType<typeof parseNewRun>;
  readonly command: WantedCommand;
  readonly key: string;
}

interface ActiveTurn {
  readonly run: RunRow;
  readonly lease: RunLease | undefined;
  readonly command: CommandRow;
  readonly intentState: string | undefined;
}

const findTurnByKey = (tx: Tx, { tenantId, sessionId, key }: WantedTurn): Promise<CommandRow | undefined> =>
  findCommandOfSessionByKey(tx, { tenantId, sessionId }, key);

/** The turn that holds the session, with all that a takeover needs locked before the session itself. */
async function lockActiveTurn(tx: Tx, { tenantId, sessionId }: WantedTurn): Promise<ActiveTurn | undefined> {
  const peek = await findSession(tx, { tenantId, sessionId });
  if (peek === undefined || peek.activeRunId === null || peek.activeCommandId === null) return undefined;
  const key = { tenantId, runId: peek.activeRunId };
  const run = await lockRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const command = await lockCommand(tx, key, peek.activeCommandId);
  const { isAnyOpen } = await lockOpenIntents(tx, key);
  if (run === undefined || command === undefined || run.sessionId !== sessionId) {
    throw new SessionProjectionBroken(`The active turn of session ${sessionId} does not exist.`, { sessionId });
  }
  const intent = await findIntent(tx, { tenantId, commandId: command.id });
  // A runner that is about to be launched for another command of the run takes the turn too.
  return { run, lease, command, intentState: isAnyOpen ? 'pending' : intent?.state };
}

/** Ends a stale turn. Errors: SessionBusy when it is alive. */
async function takeOver(
  tx: Tx,
  { run, lease, command, intentState }: ActiveTurn,
  session: SessionRow,
  settings: TenantSettings,
): Promise<void> {
  const { tenantId, sessionId } = session;
  if (isFinalRun(run.status) || isFinalCommand(command.state)) {
    // The projection is behind the facts; no operation leaves it so, an import might.
    await writeTurnEnded(tx, {
      tenantId,
      sessionId,
      runId: run.id,
      commandId: command.id,
      terminalStatus: run.status,
      failureKind: run.failureKind,
    });
    return;
  }
  const waitLeftMs = settings.claimDeadlineMs - Math.min(run.unchangedForMs, command.unchangedForMs);
  const staleness = decideStaleness(run, lease, intentState, waitLeftMs);
  if (staleness.kind === 'live') {
    throw new SessionBusy(`Session ${sessionId} is busy with turn ${command.id} of run ${run.id}.`, {
      sessionId,
      runId: run.id,
      commandId: command.id,
      holder: run.claimedBy,
      leaseRemainingMs: lease?.expiresInMs ?? null,
      staleInMs: staleness.staleInMs,
    });
  }
  const reason = 'session-turn-admission-stale-lease';
  const before = [staleTakeoverEvent(command, { why: staleness.why, claimedBy: run.claimedBy })];
  if (run.status === 'cancelling') return endCancelledRun(tx, run, { fenced: true, reason, before });
  const failureMessage = 'a new turn replaced one whose runner was gone';
  await closeRun(tx, run, { status: 'failed', failureKind: 'infra-failed', failureMessage, reason, before });
}

async function admitNew(
  tx: Tx,
  { tenantId, sessionId, run: wantedRun, command: wanted }: WantedTurn,
  session: SessionRow,
  settings: TenantSettings,
): Promise<AdmittedTurn> {
  const run = newRunRow({ tenantId, runId: newId('run'), wanted: wantedRun, session, settings });
  if (!(await insertRun(tx, run))) throw new Error(`the new run id ${run.runId} is taken`);
  const command = { ...wanted, tenantId, runId: run.runId, commandId: newId('cmd'), sessionId, targetCommandId: null };
  // The session was freed under its lock, or by takeOver just now: writeTurnStarted finds no active pair.
  await writeNewCommand(tx, command, {
    dispatch: wanted.dispatch,
    session,
    before: [runCreatedEvent(run)],
    claimDeadlineMs: settings.claimDeadlineMs,
  });
  return answer(tx, tenantId, run.runId, command.commandId, 'created');
}

/**
 * Answers a repeated turn with what the first call made. A command that was stored without its intent gets one, while nothing has
 * happened to it: data from before both were written together.
 */
async function replayTurn(tx: Tx, wanted: WantedTurn, known: CommandRow): Promise<AdmittedTurn> {
  const { tenantId } = wanted;
  const key = { tenantId, runId: known.runId };
  const stored = await findRunHash(tx, key);
  if (stored?.inputHash == null) throw goneMeanwhile();
  assertSameContent('turn', known.id, stored.inputHash, inputHashOf(tenantId, wanted.run));
  assertCommandReplay(known, wanted.command);
  const intent = await findIntent(tx, { tenantId, commandId: known.id });
  if (intent === undefined && wanted.command.dispatch !== null) return recover(tx, wanted, known);
  assertDispatchReplay(known, intent, wanted.command);
  return answer(tx, tenantId, known.runId, known.id, 'replayed').catch((error: unknown) => {
    throw isDomainError(error) && (error.code === 'run_deleted' || error.code === 'command_not_found') ? goneMeanwhile() : error;
  });
}

/** Retention has removed the turn between two looks at it: its key names nothing any more, and this is a new turn. */
const goneMeanwhile = (): RestartTransaction => new RestartTransaction('the turn of this key has just been removed');

async function recover(tx: Tx, { tenantId, command: wanted }: WantedTurn, known: CommandRow): Promise<AdmittedTurn> {
  const key = { tenantId, runId: known.runId };
  const run = await requireLockedRun(tx, key);
  const command = await requireLockedCommand(tx, key, known.id);
  const untouched =
    run.status === 'pending' && command.state === 'pending' && (await findIntent(tx, { tenantId, commandId: command.id })) === undefined;
  if (!untouched || wanted.dispatch === null) return answer(tx, tenantId, run.id, command.id, 'replayed');
  const { intentId, runnerJobId } = await writeNewIntent(tx, { ...key, commandId: command.id }, wanted.dispatch);
  await appendServerEvents(tx, key, [
    phase('runner-dispatch-recovered', {
      reason: 'session-runner-admission-partial-write-recovered',
      commandId: command.id,
      dispatchIntentId: intentId,
      plannedRunnerJobId: runnerJobId,
    }),
  ]);
  return answer(tx, tenantId, run.id, command.id, 'recovered');
}

async function answer(
  tx: Tx,
  tenantId: string,
  runId: string,
  commandId: string,
  disposition: AdmittedTurn['disposition'],
): Promise<AdmittedTurn> {
  const run = await requireRun(tx, { tenantId, runId });
  const { command, intent } = await readCommand(tx, tenantId, commandId);
  return {
    run,
    command,
    intent,
    disposition,
    replayed: disposition === 'replayed',
    recoveredPriorPartialWrite: disposition === 'recovered',
    partialWrite: false,
  };
}
