import type { Db } from './db';
import type { SqlExecutor } from './sql';
import { findStore, lockOutbox, readCluster, writeRebasedStore, type Cluster, type Store } from './store.sql';
import { inTransaction } from './tx';

// The identity of a store. Its feed is ordered by transaction numbers of the cluster plus an offset; after a restore into another cluster,
// or a promotion, the numbers may start lower, and a rebase lifts the offset so that no reader misses an event (FEED-1).

/** A rebase reads some tables whole while writers wait: seconds, and rarer than any deployment. */
const REBASE_TIMEOUT_MS = 60_000;

/** The store's row, which the first migration has made. */
export async function readStore(on: SqlExecutor): Promise<Store> {
  const store = await findStore(on);
  if (store === undefined) throw new Error('runplane.store has no row: run the migrations (`runplane migrate`) on this database');
  return store;
}

/**
 * Compares the store's row with the cluster that answers, and rebases when they differ. At start-up and whenever the listener reconnects.
 *
 * Returns   whether this call has rebased.
 * Locks     outbox_events EXCLUSIVE, then sessions and queue_tasks SHARE ROW EXCLUSIVE (a rebase only): waits for open appends and changes of these.
 * Errors    LockTimeout when an append stays open too long: call again.
 * Keeps     FEED-1.
 */
export async function checkStore(db: Db): Promise<{ storeId: string; rebased: boolean }> {
  const store = await readStore(db.sql);
  const { storeId } = store;
  if (isSameHistory(store, await readCluster(db.sql))) return { storeId, rebased: false };
  return { storeId, rebased: await rebaseStore(db) };
}

function isSameHistory(store: Store, cluster: Cluster): boolean {
  return store.systemIdentifier === cluster.systemIdentifier && store.timeline === cluster.timeline;
}

/** Whether the store stands in another cluster, or on another timeline, than its row says. Reads two rows, no lock. */
export async function isRebaseNeeded(on: SqlExecutor): Promise<boolean> {
  return !isSameHistory(await readStore(on), await readCluster(on));
}

/**
 * Lifts the numbers of the feed above all that were given so far, so that rows, cursors and consumers of before stay valid and nothing new
 * can appear below them. `force`: also where the cluster looks the same, after its files were put back to an older state (a snapshot of the
 * disk), which leaves no trace in it.
 *
 * Returns   whether this call has rebased; false too when another process was first.
 * Locks     as checkStore.   Keeps: FEED-1.
 */
export function rebaseStore(db: Db, { force = false }: { force?: boolean } = {}): Promise<boolean> {
  return inTransaction(
    db,
    async (tx) => {
      await lockOutbox(tx);
      const store = await readStore(tx);
      const cluster = await readCluster(tx);
      if (!force && isSameHistory(store, cluster)) return false;
      await writeRebasedStore(tx, cluster);
      return true;
    },
    { timeoutMs: REBASE_TIMEOUT_MS },
  );
}
