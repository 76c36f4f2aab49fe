import { Cancel, parseInput, SessionNotFound, SessionProjectionBroken, type CancelRequest, type Run } from '@runplane/contracts';
import { RestartTransaction, type Tx } from '@runplane/database';
import { findSession, type SessionKey } from '@runplane/sessions';
import { cancelLockedRun } from './cancel-run';
import { lockOpenCommands } from './command.sql';
import { lockOpenIntents } from './dispatch-intent.sql';
import { requireLockedSession } from './require';
import { lockRunLease } from './run-lease.sql';
import { lockRun } from './run.sql';

/**
 * Asks whatever runs in a session to stop: the run that holds it, as cancelRun does. The caller need not know which run that is; it is the
 * one that holds the session when this commits, never its predecessor.
 *
 * Input     as cancelRun.
 * Returns   the run and the request that stands; `run: null` when nothing runs; `changed: false` then, and when it was asked already.
 * Locks     run → run lease → commands → intents → session; starts over when the active pair changed between the look and the lock.
 *           Writes: as cancelRun.
 * Errors    SessionNotFound, InvalidRequest.
 * Emits     as cancelRun, with the target kind `session`.
 * Repeat    safe, but a repeat after the end of that turn stops the next one.
 */
export async function cancelSession(
  tx: Tx,
  { tenantId, sessionId, requestedBy, ...input }: SessionKey & Cancel & { requestedBy?: string | undefined },
): Promise<{ sessionId: string; run: Run | null; request: CancelRequest | null; changed: boolean }> {
  const cancel = parseInput(Cancel, input);
  const peek = await findSession(tx, { tenantId, sessionId });
  if (peek === undefined) throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  if (peek.activeRunId === null) return { sessionId, run: null, request: null, changed: false };

  const key = { tenantId, runId: peek.activeRunId };
  const run = await lockRun(tx, key);
  const lease = await lockRunLease(tx, key);
  await lockOpenCommands(tx, key);
  await lockOpenIntents(tx, key);
  const session = await requireLockedSession(tx, tenantId, sessionId);
  if (session.activeRunId !== peek.activeRunId || session.activeCommandId !== peek.activeCommandId) {
    throw new RestartTransaction(`the active turn of session ${sessionId} changed while it was being locked`);
  }
  if (run === undefined) throw new SessionProjectionBroken(`The active turn of session ${sessionId} does not exist.`, { sessionId });
  return { sessionId, ...(await cancelLockedRun(tx, run, lease, { ...cancel, target: { kind: 'session', id: sessionId }, requestedBy })) };
}
