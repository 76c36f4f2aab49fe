import type { Tx } from './tx';

/**
 * The order in which every transaction takes locks that it may have to wait for (docs/locking.md). Two transactions that follow it cannot
 * deadlock. Within a rank: by id, in the order of COLLATE "C". Statements that only SKIP LOCKED do not wait and are exempt.
 */
export const LOCK_RANK = {
  /** Inserts of keys that a twin may insert too: the second waits for the first one's commit. */
  newKey: 10,
  advisory: 20,
  lane: 30,
  queueTask: 40,
  attempt: 50,
  run: 60,
  runLease: 70,
  command: 80,
  intent: 90,
  runnerJob: 100,
  session: 110,
  sessionHead: 120,
  /** The record of a rebuild of the session's views. */
  sessionRebuild: 125,
  approval: 130,
  submissionHead: 140,
  reservation: 150,
  /** The floor of the feed's retention: shared by whoever begins to need events. */
  outboxFloor: 155,
  outboxShard: 160,
  feedConsumer: 165,
  /** Read marks of one reader: nobody who holds one waits for anything else. */
  readCursor: 170,
} as const;
export type LockRankName = keyof typeof LOCK_RANK;

/** A statement was about to wait for a lock out of order: a bug that could become a deadlock. */
export class LockOrderError extends Error {
  readonly code = 'lock_order';
  override readonly name = 'LockOrderError';
}

/** Orders texts as COLLATE "C" does: by the bytes of their UTF-8 form. */
export function compareC(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** The ids once each, in the order in which locks of one rank are taken. */
export function inLockOrder(ids: Iterable<string>): string[] {
  return [...new Set(ids)].sort(compareC);
}

/** What one transaction holds. It learns of a lock before the wait, so a wrong order fails on every walk of the path, not only under load. */
export class LockLedger {
  readonly #free = new Set<string>();
  #highest: { rank: LockRankName; id: string } | undefined;

  taking(rank: LockRankName, ids: readonly string[]): void {
    for (const id of ids) {
      if (this.#free.has(key(rank, id))) continue;
      this.#assertAbove(rank, id);
      this.#highest = { rank, id };
      this.#free.add(key(rank, id));
    }
  }

  inserted(rank: LockRankName, id: string): void {
    this.#free.add(key(rank, id));
  }

  #assertAbove(rank: LockRankName, id: string): void {
    const highest = this.#highest;
    if (highest === undefined || LOCK_RANK[rank] > LOCK_RANK[highest.rank]) return;
    if (rank === highest.rank && compareC(id, highest.id) > 0) return;
    throw new LockOrderError(`${rank} ${id} is locked after ${highest.rank} ${highest.id}: see docs/locking.md for the order`);
  }
}

const key = (rank: LockRankName, id: string): string => `${LOCK_RANK[rank]} ${id}`;

/** Declares the locks that the next statement may wait for; throws LockOrderError when they are out of order. Rows already held or inserted are free. */
export function takingLock(tx: Tx, rank: LockRankName, ...ids: string[]): void {
  tx.locks.taking(rank, ids);
}

/** Declares a row that this transaction has inserted: nobody else can hold it, so locking it later is free and does not raise the rank. */
export function insertedRow(tx: Tx, rank: LockRankName, id: string): void {
  tx.locks.inserted(rank, id);
}

/** Ids of the rank newKey, numbered in the order in which one operation inserts several of them. */
export const newKeyOf = {
  session: (tenantId: string, sessionId: string): string => `1 session ${tenantId}/${sessionId}`,
  run: (tenantId: string, runId: string): string => `2 run ${tenantId}/${runId}`,
  runner: (tenantId: string, runnerId: string): string => `3 runner ${tenantId}/${runnerId}`,
  backend: (profile: string): string => `4 backend ${profile}`,
  queueTask: (tenantId: string, projectId: string, key: string): string => `5 queueTask ${tenantId}/${projectId}/${key}`,
};
