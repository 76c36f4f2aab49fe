import { AppendSessionEvents, parseInput, type AppendedSessionEvents } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { appendEvents } from './append-events';
import { assertMayAppend } from './append-permission';
import { storableSessionEvents, wantedSequence } from './session-event-input';
import type { SessionKey } from './session.sql';

/**
 * Appends events to a session's log, all or none, with their outbox rows and every view of them.
 *
 * Input     events: up to 500, together up to 4 MiB; none: only the checks. epoch: of the session lease, which must be in force; without it only
 *           the types of LEASELESS_EVENT_TYPES and those that the tenant has added. expectedSequence: that the first event must get (left out: at
 *           the end). appendId: of this append; a repeat returns the first answer, also when the lease is over by then.
 * Returns   per event its sequence, id, time and place in the feed; `replayed`. An event that repeats an earlier one (a channel message, an
 *           identical request) and comes alone is answered with the earlier one.
 * Locks     session head, one statement; after three lost races, and in a caller's transaction, the head first.
 * Writes    session_events, outbox, session_heads, and the tables of the views.
 * Errors    SessionNotFound, SessionDeleted, SequenceConflict, SessionLeaseLost, LeaseRequired, AppendConflict, ClockSkew, ReservedEventType;
 *           InvalidRequest, InvalidJson, PayloadTooLarge; what the guards of the projections refuse; OutcomeUnknown (repeat it with its append id).
 * Emits     the events.
 * Repeat    safe with an append id or an expected sequence; without either a repeated call appends again.
 * Keeps     LOG-1, LOG-2, OWN-1 to OWN-3, FEED-1, VIEW-1.   Source: the original's append and append_fenced.
 */
export async function appendSessionEvents(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & AppendSessionEvents,
): Promise<AppendedSessionEvents> {
  const { events: given, epoch, expectedSequence, appendId } = parseInput(AppendSessionEvents, input);
  const events = storableSessionEvents(given);
  const sequence = wantedSequence(events, expectedSequence);
  await assertMayAppend(executorOf(at), { tenantId, sessionId }, events, epoch);
  return appendEvents(at, { tenantId, sessionId, events, epoch: epoch ?? null, sequence, appendId });
}
