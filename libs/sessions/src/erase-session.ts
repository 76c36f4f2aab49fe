import { ERASURE_CHUNK_ROWS } from '@runplane/contracts';
import { inTransaction, type Db } from '@runplane/database';
import { deleteSessionRow, deleteSessionRows, ERASED_TABLES, lockDeleted, writeScrubbed } from './deletion.sql';
import type { SessionKey } from './session.sql';
import { listSharedStorage } from './session-storage.sql';

export interface Erasure {
  readonly db: Db;
  /** The life of the session that is to go; another one of the same id is left alone. */
  readonly incarnation: string;
  readonly chunkRows?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** `kept`: its storage has not been collected, or a run of it is left. `gone`: somebody else has erased it. */
export type ErasureResult = 'erased' | 'kept' | 'gone';

/** First of all: no text, and nothing that shows a run, is left in the session's own rows. Locks: session → session head. False: it is gone. */
export function scrubSession({ db, incarnation }: Erasure, key: SessionKey): Promise<boolean> {
  return inTransaction(db, async (tx) => {
    if ((await lockDeleted(tx, key, incarnation)) === undefined) return false;
    await writeScrubbed(tx, key);
    return true;
  });
}

/**
 * Removes what hangs on a deleted session's log, in parts of some thousand rows, each in a transaction of its own; then the session, when its
 * storage has been collected and its runs are gone. A tombstone stays.
 *
 * Locks     session → session head (→ submission head), per part. Nobody else has any business there.
 * Repeat    safe, also by several processes; killed anywhere, the next pass goes on.   Source: docs/adr/0022-deleted-sessions.md.
 */
export async function eraseSessionRows(erasure: Erasure, key: SessionKey): Promise<ErasureResult> {
  const { db, incarnation, chunkRows = ERASURE_CHUNK_ROWS, signal } = erasure;
  for (const table of ERASED_TABLES) {
    for (let gone = chunkRows; gone === chunkRows;) {
      signal?.throwIfAborted();
      const removed = await inTransaction(db, async (tx) =>
        (await lockDeleted(tx, key, incarnation)) === undefined ? undefined : deleteSessionRows(tx, key, { table, limit: chunkRows }),
      );
      if (removed === undefined) return 'gone';
      gone = removed;
    }
  }
  return inTransaction(db, async (tx) => {
    const held = await lockDeleted(tx, key, incarnation);
    if (held === undefined) return 'gone';
    if (held.runs > 0 || (await hasOwnStorage(tx, key, held))) return 'kept';
    await deleteSessionRow(tx, key);
    return 'erased';
  });
}

/** Storage that another session uses is that session's to hand on. */
async function hasOwnStorage(
  tx: Parameters<typeof listSharedStorage>[0],
  key: SessionKey,
  {
    storageKind: kind,
    storageName: name,
    storageNamespace: namespace,
  }: { storageKind: string; storageName: string | null; storageNamespace: string | null },
): Promise<boolean> {
  if ((kind !== 'pvc' && kind !== 'folder') || name === null) return false;
  return (await listSharedStorage(tx, [{ ...key, kind, name, namespace }])).length === 0;
}
