import { MarkSessionsRead, MarkSessionRead, parseInput, type MarkedSessions, type SessionReadCursor } from '@runplane/contracts';
import { executorOf, isTx, takingLock, type At } from '@runplane/database';
import { markAllRead, markRead } from './read-cursor.sql';
import { sessionNotFound } from './session';
import type { SessionKey } from './session.sql';

/**
 * Notes that a reader has seen a session as it is now.
 *
 * Returns   the cursor; a version that the reader has seen before, and that is later, stays.
 * Locks     the reader's cursors; not the session.   Errors: SessionNotFound, InvalidRequest.   Repeat: safe.
 */
export async function markSessionRead(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & { readerId: string },
): Promise<SessionReadCursor> {
  const { readerId } = parseInput(MarkSessionRead, input);
  takingCursors(at, tenantId, readerId);
  const [cursor] = await markRead(executorOf(at), { tenantId, readerId, sessionIds: [sessionId] });
  if (cursor === undefined) throw sessionNotFound(sessionId);
  return cursor;
}

/**
 * The same for several sessions, or for all of a tenant as they are now. A change that commits later leaves its session unread.
 *
 * Input     sessionIds: 1 to 200; or all: true.
 * Returns   the cursors of the sessions named; `unknown`: ids that are no sessions of the tenant; the others are marked all the same.
 * Locks     the reader's cursors; no session.   Errors: InvalidRequest.   Repeat: safe.
 */
export async function markSessionsRead(at: At, { tenantId, ...input }: { tenantId: string } & MarkSessionsRead): Promise<MarkedSessions> {
  const { readerId, sessionIds } = parseInput(MarkSessionsRead, input);
  const on = executorOf(at);
  takingCursors(at, tenantId, readerId);
  if (sessionIds === undefined) return { cursors: [], unknown: [], ...(await markAllRead(on, { tenantId, readerId })) };
  const cursors = await markRead(on, { tenantId, readerId, sessionIds });
  const known = new Set(cursors.map(({ sessionId }) => sessionId));
  const unknown = [...new Set(sessionIds)].filter((sessionId) => !known.has(sessionId));
  const readAt =
    cursors
      .map((cursor) => cursor.readAt)
      .sort()
      .at(-1) ?? null;
  return { cursors, unknown, readAt };
}

/** The cursors of one reader are one unit, and the last of all locks: whoever waits for one holds everything else that it needs. */
function takingCursors(at: At, tenantId: string, readerId: string): void {
  if (isTx(at)) takingLock(at, 'readCursor', `${tenantId}/${readerId}`);
}
