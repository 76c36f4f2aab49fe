import { APPEND_EVENTS_MAX, NewSessionEvent, parseInput, type AppendedSessionEvents } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { z } from 'zod';
import { appendEvents } from './append-events';
import { storableSessionEvents, wantedSequence } from './session-event-input';
import type { SessionKey } from './session.sql';

const Events = z.array(NewSessionEvent).max(APPEND_EVENTS_MAX);

export interface ServerAppend {
  readonly events: readonly NewSessionEvent[];
  /** Stamped on the events, and on what they ask for. */
  readonly runId?: string | null | undefined;
  readonly commandId?: string | null | undefined;
  /** A repeat returns the first answer. */
  readonly appendId?: string | undefined;
  /** For what is told of a session that this transaction has marked as deleted. */
  readonly evenIfDeleted?: boolean | undefined;
}

/**
 * Appends the server's own facts (a resolution, the end of a submission, a tombstone), and those of a runner whose claim the caller has checked,
 * in the caller's transaction. No lease is asked for, and any type goes.
 *
 * Locks     session head.   Writes, Emits, Keeps: as appendSessionEvents.
 * Errors    SessionNotFound, SessionDeleted, InvalidRequest, InvalidJson, PayloadTooLarge; what the guards of the projections refuse.
 */
export function appendAsServer(
  tx: Tx,
  key: SessionKey,
  { events, runId, commandId, appendId, evenIfDeleted }: ServerAppend,
): Promise<AppendedSessionEvents> {
  const storable = storableSessionEvents(parseInput(Events, events), { runId: runId ?? null, commandId: commandId ?? null });
  return appendEvents(tx, {
    ...key,
    events: storable,
    epoch: null,
    sequence: wantedSequence(storable, undefined),
    appendId,
    evenIfDeleted,
  });
}
