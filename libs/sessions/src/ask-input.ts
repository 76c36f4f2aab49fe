import { parseInput, RequestInput, type AppendedSessionEvents, type NewSessionEvent, type RequestedInput } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendSessionEvents } from './append-session-events';
import { inputRequested, type AskInput } from './ask-decisions';
import { getInputRequest } from './read-requests';
import { findInputRequest } from './requests.sql';
import { sessionNotFound } from './session';
import { lockHead } from './session-head.sql';
import type { SessionKey } from './session.sql';

/**
 * The holder of the session lease asks people for input.
 *
 * Input     epoch: of the lease; requestId: of the caller's own, or made; prompt: up to 8,000 code points; inputSchema: JSON Schema of the answer,
 *           {}: anything; timeoutSeconds: 1 s to 30 d, default 5 min, from now.
 * Returns   the request. The same id and content: the request as it stands now, `replayed: true`.
 * Locks     session head.   Writes: session_events, input_requests, session_heads, outbox.
 * Errors    SessionNotFound, SessionDeleted, SessionLeaseLost; InputRequestConflict (the id is another question's), TooManyOpenRequests,
 *           InvalidInputSchema; InvalidRequest, InvalidJson, PayloadTooLarge.
 * Emits     user-input/requested.
 * Repeat    safe with an id of the caller's own.
 */
export async function requestInput(tx: Tx, { tenantId, sessionId, ...input }: SessionKey & RequestInput): Promise<RequestedInput> {
  const { epoch, ...ask } = parseInput(RequestInput, input);
  const key = { tenantId, sessionId };
  return askForInput(tx, key, ask, (event) => appendSessionEvents(tx, { ...key, epoch, events: [event] }));
}

/** The same for whoever has another right to ask: `append` puts the event into the session's log, or finds that it is there. */
export async function askForInput(
  tx: Tx,
  key: SessionKey,
  ask: AskInput,
  append: (event: NewSessionEvent) => Promise<AppendedSessionEvents>,
): Promise<RequestedInput> {
  const head = await lockHead(tx, key);
  if (head === undefined) throw sessionNotFound(key.sessionId);
  const first = ask.requestId === undefined ? undefined : await findInputRequest(tx, { ...key, requestId: ask.requestId });
  const { requestId, event } = inputRequested(ask, { nowMs: head.now, first });
  const { replayed } = await append(event);
  return { request: await getInputRequest(tx, { ...key, requestId }), replayed };
}
