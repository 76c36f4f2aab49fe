import {
  BlockedKeyMoved,
  BlockedKeyNotFound,
  LIST_ROWS_DEFAULT,
  parseInput,
  RetryKeys,
  RETRY_KEYS_MAX,
  SkipEvent,
  type BlockedKeyPage,
  type RetriedKeys,
  type SkippedEvent,
} from '@runplane/contracts';
import { executorOf, readStore, type At, type Tx } from '@runplane/database';
import { decodeFeedCursor, encodeFeedCursor } from '../feed-cursor';
import { listBlockedRows, toBlockedKey, type ListBlocked } from './blocked-key-list.sql';
import { ALL_SHARDS, deleteHeld, findBlockedAt, freeKey, freeParkedKeys, lockShards, readTime } from './operate.sql';
import { requireSink } from './require-sink';
import { shardOfKey } from './shard-of-key';

// What an operator does about keys that a sink does not take.

/**
 * Blocked keys of a sink, by shard and key: parked ones, those that are tried again by themselves, or both.
 *
 * Errors    SinkNotFound, InvalidCursor.   Repeat: safe; no lock.
 */
export async function listBlockedKeys(at: At, { sink, limit = LIST_ROWS_DEFAULT, ...list }: ListBlocked): Promise<BlockedKeyPage> {
  const on = executorOf(at);
  await requireSink(on, sink);
  const { storeId } = await readStore(on);
  const { found, cursor } = await listBlockedRows(on, { sink, limit, ...list });
  return { keys: found.map((row) => toBlockedKey(row, storeId)), cursor };
}

/**
 * Gives up the event at which a key is blocked: it will not be sent to this sink. The next one is tried at once.
 *
 * Input     key; cursor: of the event, as the list shows it. A call that comes too late skips nothing.
 * Locks     outbox shard.   Writes: outbox_held, outbox_blocked_keys.
 * Errors    SinkNotFound, BlockedKeyNotFound, BlockedKeyMoved (it was sent or skipped meanwhile), InvalidCursor.
 * Keeps     RELAY-1: of a key whose skipped event is sent at this moment, the pass keeps what it has sent and leaves the rest to the next.
 */
export async function skipBlockedEvent(tx: Tx, { sink, ...input }: { sink: string } & SkipEvent): Promise<SkippedEvent> {
  const { key, cursor } = parseInput(SkipEvent, input);
  const place = decodeFeedCursor(cursor);
  const shard = shardOfKey(key);
  await requireSink(tx, sink);
  await lockShards(tx, sink, [shard]);
  const blocked = await findBlockedAt(tx, { sink, shard, key });
  if (blocked === undefined) throw keyNotFound(sink, key);
  if (blocked.tx !== place.tx || blocked.position !== place.position) {
    const { storeId } = await readStore(tx);
    const now =
      blocked.tx === null || blocked.position === null ? null : encodeFeedCursor(storeId, { tx: blocked.tx, position: blocked.position });
    throw new BlockedKeyMoved(`Key ${key} is not blocked at this event any more: read the list again.`, { sink, key, cursor: now });
  }
  await deleteHeld(tx, { sink, shard, key }, place);
  await freeKey(tx, { sink, shard, key });
  tx.changed('feed');
  return { key, skipped: cursor, heldCount: blocked.heldCount - 1 };
}

/**
 * Lets a blocked key, or the parked keys of the sink, be tried again at once, with all their attempts; of these a bounded number a call, those first
 * that wait longest.
 *
 * Input     key; or before: of the answer before, for the next ones.
 * Returns   how many; more: there are others that were parked by `before`.
 * Locks     outbox shards, by number.   Writes: outbox_blocked_keys.
 * Errors    SinkNotFound; BlockedKeyNotFound for a named key.   Repeat: safe.
 */
export async function retryBlockedKeys(tx: Tx, { sink, ...input }: { sink: string } & RetryKeys): Promise<RetriedKeys> {
  const { key, before: given } = parseInput(RetryKeys, input);
  await requireSink(tx, sink);
  const shards = key === undefined ? ALL_SHARDS : [shardOfKey(key)];
  await lockShards(tx, sink, shards);
  const before = given ?? (await readTime(tx));
  if (key !== undefined) {
    if (!(await freeKey(tx, { sink, shard: shardOfKey(key), key }))) throw keyNotFound(sink, key);
    tx.changed('feed');
    return { keyCount: 1, more: false, before };
  }
  const keyCount = await freeParkedKeys(tx, { sink, before, limit: RETRY_KEYS_MAX });
  tx.changed('feed');
  return { keyCount, more: keyCount === RETRY_KEYS_MAX, before };
}

const keyNotFound = (sink: string, key: string): BlockedKeyNotFound =>
  new BlockedKeyNotFound(`Sink ${sink} has no blocked key ${key}.`, { sink, key });
