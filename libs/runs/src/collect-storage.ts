import { STORAGE_LEASE_MS_DEFAULT } from '@runplane/contracts';
import { inTransaction, remainingSince, type Db } from '@runplane/database';
import { confirmStorageEvicted, releaseStorage, type CollectableKind, type StorageClaim } from '@runplane/sessions';
import { claimExpiredStorage } from './claim-expired-storage';
import type { Sweep } from './sweep';

/** Deletes storage in the outside world. The port of whoever keeps it: folders here, volumes of a cluster elsewhere. */
export interface StorageCollector {
  readonly kinds: readonly CollectableKind[];
  /**
   * Deletes what the claim names; resolves when it is gone, also when it was gone before. It must do nothing more once `signal` has aborted:
   * from then on another may attach storage of the same name.
   */
  collect(claim: StorageClaim, options: { signal: AbortSignal }): Promise<void>;
}

const BATCH = 10;
/** The end of the lease is left to the confirmation. */
const MARGIN_MS = 500;

/**
 * One pass of deleting expired storage: claim, delete outside of any transaction, confirm or give back. A pass that dies between deletion and
 * confirmation is repeated after its lease by another, which finds nothing to delete and confirms.
 */
export async function collectStorageOnce(
  db: Db,
  {
    collector,
    owner,
    limit = BATCH,
    leaseMs = STORAGE_LEASE_MS_DEFAULT,
  }: { collector: StorageCollector; owner: string; limit?: number; leaseMs?: number },
): Promise<Sweep> {
  const askedAt = performance.now();
  const claims = await inTransaction(db, (tx) => claimExpiredStorage(tx, { owner, leaseMs, limit, kinds: [...collector.kinds] }));
  const outcomes = await Promise.all(
    claims.map((claim) => collectOne(db, collector, claim, remainingSince(claim.leaseRemainingMs, askedAt))),
  );
  const changed = outcomes.filter(Boolean).length;
  return { changed, failed: outcomes.length - changed };
}

async function collectOne(db: Db, collector: StorageCollector, claim: StorageClaim, remainingMs: number): Promise<boolean> {
  try {
    await collector.collect(claim, { signal: AbortSignal.timeout(Math.max(Math.floor(remainingMs) - MARGIN_MS, 1)) });
    await inTransaction(db, (tx) => confirmStorageEvicted(tx, claim));
    return true;
  } catch (error) {
    const failure = error instanceof Error ? error : new Error(String(error));
    db.options.onError(failure, `the deletion of the storage of session ${claim.sessionId}`);
    await inTransaction(db, (tx) => releaseStorage(tx, claim, { error: failure.message })).catch((again: unknown) => {
      db.options.onError(again instanceof Error ? again : new Error(String(again)), 'giving a deletion back'); // its lease ends by itself
    });
    return false;
  }
}
