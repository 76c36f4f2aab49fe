import { AppendRunSessionEvents, parseInput, ReservedEventType, type AppendedSessionEvents } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendAsServer, findAppend } from '@runplane/sessions';
import { findRun, type RunKey } from './run.sql';
import { assertAsks, requireTurn } from './session-turn';

/** What others tell of a session: people decide, the queue accepts, the server deletes. */
const NOT_FOR_RUNNERS = /^(session|submission)\/|^(approval|user-input)\/resolved$/;

/** However it is told, a run that is being cancelled asks nobody. */
const ASKING = /^(approval|user-input)\/requested$/;

/**
 * The runner of a session's open turn appends to the session's log. Its right is the claim of the run: it needs no session lease, and takes none away.
 *
 * Input     epoch: of the claim; events and appendId as appendSessionEvents; run and turn are stamped on the events.
 * Returns   as appendSessionEvents; a repeat of an append id gets the first answer, also when the run has ended meanwhile.
 * Locks     run → session head.   Writes: session_events, outbox, session_heads, and the tables of the views.
 * Errors    RunNotFound, RunDeleted; LeaseLost, RunClosed, RunCancelling (for requests); SessionRequired, RunNotActive; ReservedEventType; AppendConflict, ClockSkew;
 *           InvalidRequest, InvalidJson, PayloadTooLarge; what the guards of the projections refuse.
 * Emits     the events.
 * Repeat    safe with an append id.
 * Keeps     LOG-1, LOG-2, OWN-1 to OWN-3, FEED-1.   Source: the originals' workers appended under the session's lease alone.
 */
export async function appendRunSessionEvents(
  tx: Tx,
  { tenantId, runId, ...input }: RunKey & AppendRunSessionEvents,
): Promise<AppendedSessionEvents> {
  const { epoch, events, appendId } = parseInput(AppendRunSessionEvents, input);
  const reserved = events.find(({ type }) => NOT_FOR_RUNNERS.test(type));
  if (reserved !== undefined) {
    throw new ReservedEventType(`Runners do not append events of the type ${reserved.type}.`, { type: reserved.type });
  }
  const known = appendId === undefined ? undefined : await replayOf(tx, { tenantId, runId }, events, appendId);
  if (known !== undefined) return known;
  const { run, key, commandId } = await requireTurn(tx, { tenantId, runId }, epoch);
  if (events.some(({ type }) => ASKING.test(type))) assertAsks(run);
  return appendAsServer(tx, key, { events, runId, commandId, appendId });
}

/** What was appended under this id; the run may have ended since. */
async function replayOf(
  tx: Tx,
  key: RunKey,
  events: AppendRunSessionEvents['events'],
  appendId: string,
): Promise<AppendedSessionEvents | undefined> {
  const run = await findRun(tx, key);
  if (run?.sessionId == null) return undefined;
  return findAppend(tx, { tenantId: key.tenantId, sessionId: run.sessionId }, { events, appendId });
}
