import { NoReceivableTurn, SessionProjectionBroken, type NotReceivableReason } from '@runplane/contracts';
import { RestartTransaction, type Tx } from '@runplane/database';
import type { SessionRow } from '@runplane/sessions';
import { lockCommand, lockOpenCommands, type CommandRow } from './command.sql';
import { findIntent, lockOpenIntents } from './dispatch-intent.sql';
import { lockRunLease, type RunLease } from './run-lease.sql';
import { decideSteer } from './run-decisions';
import { lockRun, type RunRow } from './run.sql';

// The open turn of a session or run, locked with all that a takeover, an interrupt or a steer needs, before the session itself.
// Admission peeks at the session without a lock, locks the turn, then the session, and starts over if the session has another turn by then.

export interface ActiveTurn {
  readonly run: RunRow;
  readonly lease: RunLease | undefined;
  readonly command: CommandRow;
  /** Of its dispatch; that of a runner which is about to be launched for another command of the run: it takes the turn too. */
  readonly intentState: string | undefined;
}

/** Locks the turn that holds a session, as a look without locks has shown it. Locks: run → run lease → command → intents. */
export async function lockActiveTurn(tx: Tx, peek: SessionRow | undefined): Promise<ActiveTurn | undefined> {
  if (peek === undefined || peek.activeRunId === null || peek.activeCommandId === null) return undefined;
  const { tenantId, sessionId } = peek;
  const key = { tenantId, runId: peek.activeRunId };
  const run = await lockRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const command = await lockCommand(tx, key, peek.activeCommandId);
  const { isAnyOpen } = await lockOpenIntents(tx, key);
  if (run === undefined || command === undefined || run.sessionId !== sessionId) {
    throw new SessionProjectionBroken(`The active turn of session ${sessionId} does not exist.`, { sessionId });
  }
  return { run, lease, command, intentState: await intentStateOf(tx, tenantId, command.id, isAnyOpen) };
}

/** Locks the open turn of a locked run. Locks: run (held) → run lease → commands → intents. */
export async function lockOpenTurn(tx: Tx, run: RunRow): Promise<ActiveTurn | undefined> {
  const key = { tenantId: run.tenantId, runId: run.id };
  const lease = await lockRunLease(tx, key);
  const command = (await lockOpenCommands(tx, key)).find(({ type }) => type === 'turn');
  const { isAnyOpen } = await lockOpenIntents(tx, key);
  return command && { run, lease, command, intentState: await intentStateOf(tx, run.tenantId, command.id, isAnyOpen) };
}

async function intentStateOf(tx: Tx, tenantId: string, commandId: string, isAnyOpen: boolean): Promise<string | undefined> {
  return isAnyOpen ? 'pending' : (await findIntent(tx, { tenantId, commandId }))?.state;
}

/** Throws RestartTransaction when the locked session has another turn than the one that was locked before it. */
export function assertStillActive(session: SessionRow, active: ActiveTurn | undefined): void {
  if (session.activeRunId === (active?.run.id ?? null) && session.activeCommandId === (active?.command.id ?? null)) return;
  throw new RestartTransaction(`the active turn of session ${session.sessionId} changed while it was being locked`);
}

/** Errors: NoReceivableTurn. */
export function assertReceivable({ run, lease, command, intentState }: ActiveTurn): void {
  const decision = decideSteer(run, lease, command, intentState);
  if (decision.kind === 'refuse') throw noReceivableTurn(decision.why, { sessionId: run.sessionId, runId: run.id, commandId: command.id });
}

export function noReceivableTurn(
  why: NotReceivableReason,
  { sessionId = null, runId = null, commandId = null }: { sessionId?: string | null; runId?: string | null; commandId?: string | null },
): NoReceivableTurn {
  const where = sessionId === null ? `Run ${runId ?? ''}` : `Session ${sessionId}`;
  return new NoReceivableTurn(`${where} has no open turn that could take a steer: ${why}.`, { sessionId, runId, commandId, why });
}
