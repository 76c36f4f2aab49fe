import { OUTBOX_KEEP_DAYS_DEFAULT, OUTBOX_PRUNE_BATCH_ROWS, OUTBOX_PRUNE_PASS_ROWS } from '@runplane/contracts';
import { inTransaction, type Db, type SqlExecutor } from '@runplane/database';
import { readStorePlaces } from './feed-consumer.sql';
import { encodeFeedCursor, floorOf, isBefore } from './feed-cursor';
import {
  countPrunable,
  deletePrunedBatch,
  liftShardsToFloor,
  listFloorCandidates,
  lockOutboxFloor,
  markOutboxHead,
  writeOutboxFloor,
  type FloorCandidate,
  type FloorRules,
} from './outbox-floor.sql';
import { CONSUMER_SILENT_MS_DEFAULT } from './read-feed-consumers';

export interface PruneOutbox {
  /** How long events stay at least, for readers that are not registered; null: for ever. */
  readonly keepMs?: number | null | undefined;
  /** How long a registered consumer is waited for that says nothing. */
  readonly silentMs?: number | undefined;
  /** Says what would go, and removes nothing. */
  readonly dryRun?: boolean | undefined;
  /** Rows of a pass; the next goes on. */
  readonly limit?: number | undefined;
  /** Rows of a statement. */
  readonly batch?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Told after each batch: the pass is alive. */
  readonly onAlive?: (() => void) | undefined;
}

export interface PrunedOutbox {
  /** Rows removed; of a dry run, those that would go, up to the limit. */
  readonly changed: number;
  /** The floor after the pass, or as it would be. */
  readonly floor: string;
  /** Who keeps the floor from being higher: `age`, a consumer, a sink; null where nothing is old enough to be marked. */
  readonly heldBy: string | null;
  /** More could go now. */
  readonly more: boolean;
}

const KEEP_MS_DEFAULT = OUTBOX_KEEP_DAYS_DEFAULT * 86_400_000;
const MARK_EVERY_MS_MAX = 3_600_000;

/**
 * Lifts the floor of the feed as far as age and registered readers allow, and removes what lies below it, in batches.
 *
 * Age       is the time since an event could first be read, not since it was written: each pass marks where the head is, and the floor follows the
 *           marks. What a long transaction brings late is as young as its commit.
 * Locks     floor, alone, twice: to lift it, and for each batch. Other passes are let by.   Writes: outbox_floor, outbox_marks, outbox_events.
 * Keeps     FEED-1: a reader that stands below the floor is told so (CursorExpired), and never goes on behind a gap.
 * Repeat    safe, at any number of processes.   Source: docs/adr/0029.
 */
export async function pruneOutboxOnce(db: Db, options: PruneOutbox = {}): Promise<PrunedOutbox> {
  const { keepMs = KEEP_MS_DEFAULT, silentMs = CONSUMER_SILENT_MS_DEFAULT, dryRun = false, limit = OUTBOX_PRUNE_PASS_ROWS } = options;
  if (keepMs === null) return report(db, { changed: 0, heldBy: 'age', more: false });
  const rules = { keepMs, silentMs };
  if (dryRun) return previewPrune(db, rules, limit);
  await markOutboxHead(db.sql, { everyMs: Math.min(Math.ceil(keepMs / 100), MARK_EVERY_MS_MAX) });
  const heldBy = await liftFloor(db, rules);
  const { changed, more } = await removeBelowFloor(db, { ...options, limit });
  return report(db, { changed, heldBy, more });
}

async function previewPrune(db: Db, rules: FloorRules, limit: number): Promise<PrunedOutbox> {
  const store = await readStorePlaces(db.sql);
  const lowest = lowestOf(await listFloorCandidates(db.sql, rules));
  const to = lowest === undefined || isBefore(lowest, floorOf(store)) ? floorOf(store) : lowest;
  const changed = await countPrunable(db.sql, { to, rowsMax: limit });
  return { changed, floor: encodeFeedCursor(store.storeId, to), heldBy: lowest?.heldBy ?? null, more: changed === limit };
}

/** In a transaction of its own, so that nobody who begins to need events waits for the removal of others. */
function liftFloor(db: Db, rules: FloorRules): Promise<string | null> {
  return inTransaction(db, async (tx) => {
    const floor = await lockOutboxFloor(tx);
    const lowest = lowestOf(await listFloorCandidates(tx, rules));
    if (lowest !== undefined && isBefore(floor, lowest)) await writeOutboxFloor(tx, lowest);
    await liftShardsToFloor(tx);
    return lowest?.heldBy ?? null;
  });
}

/** Nothing may go before something is old enough, whatever readers stand beyond it. */
function lowestOf(candidates: readonly FloorCandidate[]): FloorCandidate | undefined {
  if (candidates[0]?.heldBy !== 'age') return undefined;
  return candidates.reduce((lowest, each) => (isBefore(each, lowest) ? each : lowest));
}

async function removeBelowFloor(
  db: Db,
  { limit, batch = OUTBOX_PRUNE_BATCH_ROWS, signal, onAlive }: PruneOutbox & { limit: number },
): Promise<{ changed: number; more: boolean }> {
  let changed = 0;
  while (changed < limit && signal?.aborted !== true) {
    const rowsMax = Math.min(batch, limit - changed);
    const gone = await deletePrunedBatch(db.sql, rowsMax);
    changed += gone;
    onAlive?.();
    if (gone < rowsMax) return { changed, more: false };
  }
  return { changed, more: true };
}

async function report(on: { readonly sql: SqlExecutor }, pruned: Omit<PrunedOutbox, 'floor'>): Promise<PrunedOutbox> {
  const store = await readStorePlaces(on.sql);
  return { ...pruned, floor: encodeFeedCursor(store.storeId, floorOf(store)) };
}
