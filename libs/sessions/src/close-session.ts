import { APPEND_EVENTS_MAX, type NewSessionEvent } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendAsServer } from './append-as-server';
import { listOpenInSession, writeDeleted, type DeletedSession } from './deletion.sql';
import { lockHead } from './session-head.sql';
import type { SessionKey } from './session.sql';

// How a session's own life ends: what is open in it is closed by events, a tombstone is told, and nobody sees it any more.

const BY_THE_SERVER = { type: 'system', id: 'runplane' } as const;

/**
 * Closes what is open in a session whose head this transaction holds: unfinished submissions fail, approvals and input requests are cancelled.
 * Returns how many of them there were.
 */
export async function closeOpenInSession(
  tx: Tx,
  key: SessionKey,
  { reason, evenIfDeleted }: { reason: string; evenIfDeleted?: boolean },
): Promise<number> {
  const open = await listOpenInSession(tx, key);
  const events = open.map(({ kind, id, revision }): NewSessionEvent => {
    if (kind === 'submission') return { type: 'submission/failed', data: { operation_id: id, error: reason } };
    const resolved = { expected_revision: revision, actor: BY_THE_SERVER, reason };
    if (kind === 'approval') return { type: 'approval/resolved', data: { approval_id: id, resolution: 'cancelled', ...resolved } };
    return { type: 'user-input/resolved', data: { request_id: id, outcome: 'cancelled', ...resolved } };
  });
  for (let from = 0; from < events.length; from += APPEND_EVENTS_MAX) {
    await appendAsServer(tx, key, { events: events.slice(from, from + APPEND_EVENTS_MAX), evenIfDeleted });
  }
  return events.length;
}

/**
 * Marks a session as deleted. Whoever calls has locked it and seen that nobody works in it.
 *
 * Locks     session (held) → session head.   Writes: session_events, outbox, the views of what is closed, session_heads, sessions (a new version).
 * Emits     submission/failed, approval/resolved, user-input/resolved for what is open; session/deleted, the last event of this life of the id.
 * Keeps     LOG-2. A lease that has ended is taken away (OWN-1). Storage expires now, and so is the storage collector's.
 */
export async function markSessionDeleted(
  tx: Tx,
  key: SessionKey,
  { reason, requestedBy }: { reason: string | null; requestedBy: string | null },
): Promise<DeletedSession> {
  const head = await lockHead(tx, key);
  if (head === undefined) throw new Error(`session ${key.sessionId} has no head`);
  await closeOpenInSession(tx, key, { reason: 'session-deleted' });
  await appendAsServer(tx, key, {
    events: [{ type: 'session/deleted', data: { incarnation: head.incarnation, reason, requested_by: requestedBy } }],
  });
  return writeDeleted(tx, key);
}
