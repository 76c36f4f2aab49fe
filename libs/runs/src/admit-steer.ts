import { AdmitSteer, newId, parseInput, requireIdentifier, SessionNotFound, type AdmittedSteer } from '@runplane/contracts';
import { RestartTransaction, type Tx } from '@runplane/database';
import { findSession, type SessionRow } from '@runplane/sessions';
import { assertReceivable, assertStillActive, lockActiveTurn, noReceivableTurn, type ActiveTurn } from './active-turn';
import { findCommandOfRunByKey, findCommandOfSessionByKey, toCommand, type CommandRow } from './command.sql';
import { assertCommandReplay, parseCommand, writeNewCommand, type WantedCommand } from './create-command';
import { requireCommand, requireLockedSession, requireRun, restartIfGone } from './require';

/**
 * Gives the open turn of a session words on its way: a command of type `steer` in the turn's run, which remembers the turn. The runner that
 * has the turn learns of it at once; acknowledged says that the runner has it, completed that the work has taken it up. A steer that is
 * still open when its turn ends is closed as missed.
 *
 * Input     steer: see AdmitSteer; idempotencyKey: per session, over turns and steers of all its runs.
 * Returns   the steer with its run and turn, who has them and for how long. The same key and content give the same steer in its present
 *           state with `replayed: true`, also after the turn's end.
 * Locks     run → run lease → command → intents → session; starts over when the active pair changed between the look and the lock.
 *           Writes: commands, sessions, run_events, outbox; nothing when it is refused.
 * Errors    NoReceivableTurn, SessionNotFound, IdempotencyConflict, IdempotencyKeyRequired, InvalidRequest.
 * Emits     user_message (with text), command-created, steer-accepted.
 * Repeat    safe with the key.
 * Keeps     IDEM-1, END-1, LOG-2.   Source: the original's admitSessionSteer.
 */
export async function admitSteer(
  tx: Tx,
  {
    tenantId,
    sessionId: givenId,
    steer: input,
    idempotencyKey,
  }: { tenantId: string; sessionId: string; steer: AdmitSteer; idempotencyKey: string },
): Promise<AdmittedSteer> {
  const { payload } = parseInput(AdmitSteer, input);
  const sessionId = requireIdentifier(givenId, 'the session id');
  const wanted = parseCommand({ type: 'steer', payload }, idempotencyKey);
  // The look comes before the key: a turn that it finds ended has brought the key with it, if it had it.
  const peek = await findSession(tx, { tenantId, sessionId });
  if (peek === undefined) throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  const known = await findCommandOfSessionByKey(tx, peek, idempotencyKey);
  if (known !== undefined) {
    assertCommandReplay(known, wanted);
    return replaySteer(tx, tenantId, known);
  }
  const active = await lockActiveTurn(tx, peek);
  if (active === undefined) throw noReceivableTurn('no-turn', { sessionId });
  const session = await requireLockedSession(tx, tenantId, sessionId);
  assertStillActive(session, active);
  // Under the session's lock no twin can be about to commit the key: what this look does not see does not exist.
  if ((await findCommandOfSessionByKey(tx, session, idempotencyKey)) !== undefined) {
    throw new RestartTransaction('a twin of this steer has just been admitted');
  }
  return steerTurn(tx, active, session, wanted);
}

/** Adds a steer to a locked turn of a locked session that does not know its key. Errors: NoReceivableTurn, IdempotencyConflict. */
export async function steerTurn(tx: Tx, active: ActiveTurn, session: SessionRow, wanted: WantedCommand): Promise<AdmittedSteer> {
  assertReceivable(active);
  const { tenantId, id: runId } = active.run;
  const other = wanted.idempotencyKey === null ? undefined : await findCommandOfRunByKey(tx, { tenantId, runId }, wanted.idempotencyKey);
  if (other !== undefined) assertCommandReplay(other, wanted); // a command of another type: keys of those are their run's
  const commandId = newId('cmd');
  await writeNewCommand(
    tx,
    { ...wanted, type: 'steer', tenantId, runId, commandId, sessionId: session.sessionId, targetCommandId: active.command.id },
    { dispatch: null, session, before: [], claimDeadlineMs: null },
  );
  return answer(tx, tenantId, await requireCommand(tx, { tenantId, commandId }), false);
}

/** The steer that a key has made, in its present state. */
export const replaySteer = (tx: Tx, tenantId: string, known: CommandRow): Promise<AdmittedSteer> =>
  restartIfGone(answer(tx, tenantId, known, true));

async function answer(tx: Tx, tenantId: string, steer: CommandRow, replayed: boolean): Promise<AdmittedSteer> {
  const { runId, targetCommandId } = steer;
  if (targetCommandId === null) throw new Error(`steer ${steer.id} has no target`);
  const run = await requireRun(tx, { tenantId, runId });
  const target = await requireCommand(tx, { tenantId, commandId: targetCommandId });
  return {
    disposition: 'steered',
    run,
    command: toCommand(steer),
    target: toCommand(target),
    holder: run.claimedBy,
    leaseRemainingMs: run.leaseRemainingMs,
    replayed,
  };
}
