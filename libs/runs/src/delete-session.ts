import { DeleteSession, freeText, parseInput, SessionInUse, type DeletedSession } from '@runplane/contracts';
import { isLive, type Tx } from '@runplane/database';
import { lockHead, lockSession, markSessionDeleted, sessionNotFound, type SessionKey } from '@runplane/sessions';
import type { z } from 'zod';
import { listBusySessions } from './session-runs.sql';

export interface DeleteSessionInput extends SessionKey, z.input<typeof DeleteSession> {
  /** Who asks, as the audit has it. */
  readonly requestedBy?: string | undefined;
}

/**
 * Deletes a session: at once nobody sees it, its rows and its runs go in the background (eraseDeletedOnce), its storage to the storage collector.
 *
 * Input     reason: why, told in the tombstone.
 * Returns   when it was deleted; `changed: false` when that was before.
 * Locks     session → session head.   Writes: as markSessionDeleted.
 * Errors    SessionNotFound; SessionInUse while a turn or any run of it is open, or a worker holds its lease: end that first.
 * Emits     the end of what is open in it, then session/deleted.
 * Repeat    safe until it is erased.
 * Keeps     TURN-1, OWN-3: whoever admits a turn, takes the lease or appends holds one of the two rows.   Source: docs/adr/0022-deleted-sessions.md.
 */
export async function deleteSession(tx: Tx, { tenantId, sessionId, requestedBy, ...input }: DeleteSessionInput): Promise<DeletedSession> {
  const key = { tenantId, sessionId };
  const { reason } = parseInput(DeleteSession, input);
  const session = await lockSession(tx, key);
  if (session === undefined || session.copying) throw sessionNotFound(sessionId);
  if (session.deletedAt !== null) return { sessionId, deletedAt: session.deletedAt, changed: false };
  if (session.activeRunId !== null) throw inUse(sessionId, 'turn-open', session.activeRunId);
  // Under the session's lock no run of it begins; one that ends just now is seen as open, and the call can be repeated.
  if ((await listBusySessions(tx, [key])).length > 0) throw inUse(sessionId, 'run-open', null);
  const head = await lockHead(tx, key);
  if (head !== undefined && head.leaseOwner !== null && isLive(head.leaseInMs)) {
    throw inUse(sessionId, 'leased', head.leaseOwner, head.leaseInMs);
  }
  const { deletedAt } = await markSessionDeleted(tx, key, {
    reason: reason == null ? null : freeText(reason),
    requestedBy: requestedBy ?? null,
  });
  return { sessionId, deletedAt, changed: true };
}

const WHY = {
  'turn-open': 'has an open turn: cancel it first',
  'run-open': 'has an open run: cancel it first',
  leased: 'is held by a worker: let its lease end or be released first',
};

function inUse(sessionId: string, why: keyof typeof WHY, holder: string | null, remainingMs: number | null = null): SessionInUse {
  return new SessionInUse(`Session ${sessionId} ${WHY[why]}.`, { sessionId, why, holder, remainingMs });
}
