import {
  contentHash,
  cursorTime,
  defineCursor,
  freeText,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  MarkStorageEvicted,
  parseInput,
  RefreshSessionStorage,
  STORAGE_BACKOFF_MS_MAX,
  STORAGE_BACKOFF_MS_MIN,
  StorageChanged,
  StorageEvicting,
  type ChangedSession,
  type Session,
} from '@runplane/contracts';
import { backOffMs, executorOf, type At, type Tx } from '@runplane/database';
import { z } from 'zod';
import { getSession, requireLockedSession } from './session';
import { decideEvicted, holdsStorage, storageHeldMs } from './session-decisions';
import { lockSessions, type SessionKey, type SessionRow } from './session.sql';
import {
  listExpiredSharers,
  listExpiredStorage,
  writeEvicted,
  writeStorage,
  writeStorageReleased,
  type ExpiredStorage,
  type StorageClaim,
} from './session-storage.sql';

/**
 * Says what storage a session has now. Everything about it is replaced.
 *
 * Returns   the session, with the next storage version.
 * Locks     session, and the expired ones that share the storage.   Writes: sessions (a new version, no activity).
 * Errors    SessionNotFound, InvalidRequest; StorageEvicting while a collector is deleting storage of this name, of whichever session: it may be
 *           gone in a moment.
 * Keeps     OWN-1: whoever was deleting what was attached before is fenced.   Source: the original's refreshSessionStorage.
 */
export async function refreshSessionStorage(
  tx: Tx,
  { tenantId, sessionId, storage: input }: SessionKey & { storage: RefreshSessionStorage },
): Promise<Session> {
  const storage = parseInput(RefreshSessionStorage, input);
  const key = { tenantId, sessionId };
  const sharers = await lockSharers(tx, key, storage);
  const session = await requireLockedSession(tx, key);
  if (storage.kind === session.storageKind && storage.name === session.storageName) assertStorageFree(session);
  sharers.forEach(assertStorageFree);
  await writeStorage(tx, key, storage);
  return getSession(tx, key);
}

/** Locks the sessions whose deletion would take this storage along, and the session itself in its place among them; a collector passes over them. */
async function lockSharers(tx: Tx, key: SessionKey, { kind, name, namespace }: RefreshSessionStorage): Promise<SessionRow[]> {
  if (kind === 'none' || name == null) return [];
  const ids = await listExpiredSharers(tx, { ...key, kind, name, namespace });
  if (ids.length === 0) return [];
  const locked = await lockSessions(tx, key.tenantId, [...ids, key.sessionId]);
  return locked.filter(({ sessionId }) => sessionId !== key.sessionId);
}

/**
 * Reports that a session's storage is gone. It is a compare-and-set: a slow reporter cannot mark what was attached since.
 *
 * Input     name and version of the storage that was deleted.
 * Returns   the session; `changed: false` when it was told before.
 * Locks     session.   Writes: sessions (a new version, no activity).
 * Errors    SessionNotFound, InvalidRequest, StorageChanged (another name or version).
 * Repeat    safe.   Source: the original's markSessionStorageEvicted, which compared nothing.
 */
export async function markSessionStorageEvicted(
  tx: Tx,
  { tenantId, sessionId, ...input }: SessionKey & MarkStorageEvicted,
): Promise<ChangedSession> {
  const report = parseInput(MarkStorageEvicted, input);
  const key = { tenantId, sessionId };
  const session = await requireLockedSession(tx, key, { evenIfDeleted: true });
  const decision = decideEvicted(session, report);
  if (decision === 'refuse') throw storageChanged(session);
  if (decision === 'apply') await writeEvicted(tx, key);
  return { session: await getSession(tx, key, { evenIfDeleted: true }), changed: decision === 'apply' };
}

/**
 * The holder of a deletion has deleted: the storage is marked evicted. Judged by owner, epoch and storage version; a lease that has ended
 * but was not taken away still counts, since the deletion is a fact.
 *
 * Locks     session.   Errors: SessionNotFound, StorageChanged (the claim is over, or the storage another one).
 */
export async function confirmStorageEvicted(tx: Tx, claim: StorageClaim): Promise<Session> {
  const session = await requireLockedSession(tx, claim, { evenIfDeleted: true });
  if (!holdsStorage(session, claim) || session.storageVersion !== claim.storageVersion) throw storageChanged(session);
  await writeEvicted(tx, claim);
  return getSession(tx, claim, { evenIfDeleted: true });
}

/**
 * The holder of a deletion could not delete. It is tried again after a pause that doubles from 10 s to 1 h; after twenty attempts an operator
 * must look: a refresh of the storage starts anew.
 *
 * Returns   false when the claim was over.   Locks: session.
 */
export async function releaseStorage(tx: Tx, claim: StorageClaim, { error }: { error: string | null }): Promise<boolean> {
  const session = await requireLockedSession(tx, claim, { evenIfDeleted: true });
  if (!holdsStorage(session, claim)) return false;
  const delayMs = backOffMs(claim.attempts, { baseMs: STORAGE_BACKOFF_MS_MIN, maxMs: STORAGE_BACKOFF_MS_MAX });
  await writeStorageReleased(tx, claim, { delayMs, lastError: error === null ? null : freeText(error) });
  return true;
}

/**
 * For whoever is about to start work in a locked session. While a collector deletes its storage, nothing starts: the runner would find half of
 * it. When the collector's lease has ended, the start takes it away, and the collector's confirmation is refused.
 * Errors: StorageEvicting.
 */
export function assertStorageFree(session: SessionRow): void {
  const leaseRemainingMs = storageHeldMs(session);
  if (leaseRemainingMs === undefined) return;
  throw new StorageEvicting(`The storage of session ${session.sessionId} is being deleted: repeat the call when that is over.`, {
    sessionId: session.sessionId,
    leaseRemainingMs,
  });
}

function storageChanged({ sessionId, storageKind, storageName, storageVersion }: SessionRow): StorageChanged {
  return new StorageChanged(`The storage of session ${sessionId} is another one by now.`, {
    sessionId,
    storageKind,
    storageName,
    storageVersion,
  });
}

const expiredCursor = defineCursor(
  'expired-storage',
  z.strictObject({ expiresAt: cursorTime, sessionId: identifier, tenantId: identifier }),
);

/**
 * Sessions whose storage has expired, by the database's clock, the longest expired first: also busy ones, and those whose deletion has failed.
 * Without a tenant, of all of them: an operator's view. Errors: InvalidCursor.
 */
export async function listGcExpiredSessions(
  at: At,
  {
    tenantId,
    cursor,
    limit = LIST_ROWS_DEFAULT,
  }: { tenantId?: string | undefined; cursor?: string | undefined; limit?: number | undefined },
): Promise<{ storages: ExpiredStorage[]; cursor: string | null }> {
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const filterHash = contentHash({ tenantId: tenantId ?? null }).hash;
  const after = cursor === undefined ? undefined : expiredCursor.decode(cursor, filterHash);
  const found = await listExpiredStorage(executorOf(at), { tenantId, after, limit: rowsMax + 1 });
  const storages = found.slice(0, rowsMax);
  const last = storages.at(-1);
  if (found.length <= rowsMax || last === undefined) return { storages, cursor: null };
  const place = { expiresAt: last.expiresAt, sessionId: last.sessionId, tenantId: last.tenantId };
  return { storages, cursor: expiredCursor.encode(place, filterHash) };
}
