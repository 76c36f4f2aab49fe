import {
  AdmitTurn,
  newId,
  parseInput,
  requireIdentifier,
  type AdmissionOf,
  type AdmittedSteer,
  type AdmittedTurn,
  type BusyPolicy,
  type TenantSettings,
  type TurnAdmission,
} from '@runplane/contracts';
import { requireTenant, RestartTransaction, type Tx } from '@runplane/database';
import {
  adoptBoundary,
  assertStorageFree,
  enqueueTurn,
  ensureSession,
  findSession,
  readQueuedTurn,
  type SessionRow,
} from '@runplane/sessions';
import { assertStillActive, lockActiveTurn } from './active-turn';
import { replaySteer } from './admit-steer';
import { findCommandOfSessionByKey, type CommandRow } from './command.sql';
import { assertCommandReplay, assertDispatchReplay, readCommand, writeNewCommand, writeNewIntent } from './create-command';
import { assertSameContent, inputHashOf, newRunRow, type parseNewRun } from './create-run';
import { findIntent } from './dispatch-intent.sql';
import { goneMeanwhile, requireLockedCommand, requireLockedRun, requireLockedSession, requireRun, restartIfGone } from './require';
import { appendServerEvents, phase } from './run-event.sql';
import { findRunHash, insertRun } from './run.sql';
import { runCreatedEvent } from './server-events';
import { lookIntoQueue, parseTurn, waitingTurn } from './queued-turn';
import { settleActiveTurn, type WantingTurn } from './settle-active-turn';

export interface AdmitTurnInput<Policy extends BusyPolicy> {
  readonly tenantId: string;
  readonly sessionId: string;
  readonly turn: AdmitTurn<Policy>;
  readonly idempotencyKey: string;
  readonly requestedBy?: string | undefined;
}

/**
 * Admits a user turn to a session: a new run with the turn as its first command and, unless `dispatch` is null, the intent that makes a
 * runner for it. All of it or nothing. A turn whose runner is dead, or was never born, is taken over in the same transaction, so that no
 * client ever sees the session without an owner.
 *
 * Input     turn: see AdmitTurn; busyPolicy: what to do when the session has a turn that goes on; idempotencyKey: per session, over all its runs;
 *           requestedBy: who interrupts.
 * Returns   `created`; `replayed` (same key and content: the same run and command in their present state); `recovered` (the same, whose command had
 *           no intent: it has one now). Under `steer`: `steered`, the words became a steer of the open turn, and remain it when the call is
 *           repeated. Under `interrupt`: `interrupting`, the open turn's run is being cancelled; repeat the call with its key, nothing is
 *           stored for the turn that waits. It interrupts whatever turn is open when it is called, also one that came in between. Under `enqueue`:
 *           `queued`, the turn is a submission of the kind `turn`, whose operation id is the key, behind everything that waits before the session; it
 *           starts by itself (startQueuedTurnsOnce of libs/queue), and a repeat then answers with its run.
 * Locks     new key (session) → active run → its lease → its command → its intents → session → with `enqueue`: session head → submission head; starts
 *           over when the active pair changed between the look and the lock.   Writes: sessions, runs, commands, intents, run_events, outbox;
 *           with `enqueue` session_events, submissions.
 * Errors    SessionBusy (with holder and remaining lease), NoReceivableTurn (`steer`), SubmissionQueueFull (`enqueue`), SessionBoundary,
 *           StorageEvicting, IdempotencyConflict, IdempotencyKeyRequired, TenantNotFound, InvalidRequest, PayloadTooLarge (`enqueue`: 956 KiB).
 * Emits     run-created, user_message, command-created; at a takeover, in the old run, session-turn-admission-stale-terminalized and its ending;
 *           under `steer` what admitSteer emits, under `interrupt` what cancelRun emits; under
 *           `enqueue` submission/accepted in the session's log.
 * Repeat    safe with the key.
 * Keeps     TURN-1, IDEM-1, END-1, LOG-2, FIFO-1, FEED-1 (the session's feed number orders its runs).   Source: the original's admitSessionTurn.
 */
export async function admitTurn<Policy extends BusyPolicy = 'reject'>(tx: Tx, input: AdmitTurnInput<Policy>): Promise<AdmissionOf<Policy>>;
export async function admitTurn(
  tx: Tx,
  { tenantId, sessionId, turn: input, idempotencyKey, requestedBy }: AdmitTurnInput<BusyPolicy>,
): Promise<TurnAdmission> {
  const turn = parseInput(AdmitTurn, input);
  requireIdentifier(sessionId, 'the session id');
  const { run, command } = parseTurn(sessionId, idempotencyKey, turn);
  const wanted: WantedTurn = {
    tenantId,
    sessionId,
    run,
    command,
    waiting: waitingTurn({ tenantId, sessionId, operationId: idempotencyKey }, run, command),
    key: idempotencyKey,
    busyPolicy: turn.busyPolicy,
    requestedBy,
  };
  const known = await findTurnByKey(tx, wanted);
  if (known !== undefined) return replayTurn(tx, wanted, known);
  const enqueues = wanted.busyPolicy === 'enqueue';
  if (enqueues && (await lookIntoQueue(tx, wanted.waiting)).isKnown) return readQueuedTurn(tx, wanted.waiting, { replayed: true });

  const { settings } = await requireTenant(tx, tenantId);
  await ensureSession(tx, tenantId, { ...wanted.run.sessionRef, sessionId }, wanted.run);
  const active = await lockActiveTurn(tx, await findSession(tx, { tenantId, sessionId }));
  const session = await requireLockedSession(tx, tenantId, sessionId);
  assertStillActive(session, active);
  // Under the session's lock no twin can be about to commit the key: what this look does not see does not exist.
  if ((await findTurnByKey(tx, wanted)) !== undefined) throw new RestartTransaction('a twin of this turn has just been admitted');
  const queue = await lookIntoQueue(tx, wanted.waiting);
  if (enqueues && queue.isKnown) return readQueuedTurn(tx, wanted.waiting, { replayed: true });
  await adoptBoundary(tx, session, wanted.run);
  assertStorageFree(session);
  // Behind what waits already, whatever has become of the open turn: when the first of those is looked at again has been said.
  if (enqueues && !queue.isQueueEmpty) return enqueueTurn(tx, wanted.waiting);
  const settled = active === undefined ? undefined : await settleActiveTurn(tx, wanted, active, session, settings);
  return settled ?? admitNew(tx, wanted, session, settings);
}

interface WantedTurn extends WantingTurn {
  readonly tenantId: string;
  readonly sessionId: string;
  readonly run: ReturnType<typeof parseNewRun>;
  readonly key: string;
}

const findTurnByKey = (tx: Tx, { tenantId, sessionId, key }: WantedTurn): Promise<CommandRow | undefined> =>
  findCommandOfSessionByKey(tx, { tenantId, sessionId }, key);

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
async function replayTurn(tx: Tx, wanted: WantedTurn, known: CommandRow): Promise<AdmittedTurn | AdmittedSteer> {
  const { tenantId } = wanted;
  if (wanted.busyPolicy === 'steer' && known.type === 'steer') {
    assertCommandReplay(known, { ...wanted.command, type: 'steer' }); // what the turn says of its run, the steer's run never was asked for
    return replaySteer(tx, tenantId, known);
  }
  const key = { tenantId, runId: known.runId };
  const stored = await findRunHash(tx, key);
  if (stored?.inputHash == null) throw goneMeanwhile();
  assertSameContent('turn', known.id, stored.inputHash, inputHashOf(tenantId, wanted.run));
  assertCommandReplay(known, wanted.command);
  const intent = await findIntent(tx, { tenantId, commandId: known.id });
  if (intent === undefined && wanted.command.dispatch !== null) return recover(tx, wanted, known);
  assertDispatchReplay(known, intent, wanted.command);
  return restartIfGone(answer(tx, tenantId, known.runId, known.id, 'replayed'));
}

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
