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
  return { storeId, rebased: await rebase(db) };
}

function isSameHistory(store: Store, cluster: Cluster): boolean {
  return store.systemIdentifier === cluster.systemIdentifier && store.timeline === cluster.timeline;
}

/** False when another process was first. */
function rebase(db: Db): Promise<boolean> {
  return inTransaction(
    db,
    async (tx) => {
      await lockOutbox(tx);
      const store = await readStore(tx);
      const cluster = await readCluster(tx);
      if (isSameHistory(store, cluster)) return false;
      await writeRebasedStore(tx, cluster);
      return true;
    },
    { timeoutMs: REBASE_TIMEOUT_MS },
  );
}
