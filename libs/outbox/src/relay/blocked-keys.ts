import {
  BlockedKeyMoved,
  BlockedKeyNotFound,
  LIST_ROWS_DEFAULT,
  parseInput,
  partitionOf,
  RetryKeys,
  SkipEvent,
  type BlockedKeyPage,
  type RetriedKeys,
  type SkippedEvent,
} from '@runplane/contracts';
import { executorOf, readStore, type At, type Tx } from '@runplane/database';
import { decodeFeedCursor, encodeFeedCursor } from '../feed-cursor';
import { listBlockedRows, toBlockedKey, type ListBlocked } from './blocked-key-list.sql';
import { ALL_SHARDS, deleteHeld, findBlockedAt, freeKeys, lockShards } from './operate.sql';
import { requireSink } from './require-sink';

// What an operator does about keys that a sink does not take.

/** Tenants have no slash in their ids. */
export function shardOfKey(key: string): number {
  const slash = key.indexOf('/');
  return partitionOf(key.slice(0, slash), key.slice(slash + 1)).shard;
}

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
  await freeKeys(tx, { sink, shards: [shard], key });
  tx.changed('feed');
  return { key, skipped: cursor, heldCount: blocked.heldCount - 1 };
}

/**
 * Lets a blocked key, or every parked key of the sink, be tried again at once, with all its attempts.
 *
 * Locks     outbox shards, by number.   Writes: outbox_blocked_keys.
 * Errors    SinkNotFound; BlockedKeyNotFound for a named key.   Repeat: safe.
 */
export async function retryBlockedKeys(tx: Tx, { sink, ...input }: { sink: string } & RetryKeys): Promise<RetriedKeys> {
  const { key } = parseInput(RetryKeys, input);
  await requireSink(tx, sink);
  const shards = key === undefined ? ALL_SHARDS : [shardOfKey(key)];
  await lockShards(tx, sink, shards);
  const keyCount = await freeKeys(tx, { sink, shards, key });
  if (key !== undefined && keyCount === 0) throw keyNotFound(sink, key);
  tx.changed('feed');
  return { keyCount };
}

const keyNotFound = (sink: string, key: string): BlockedKeyNotFound =>
  new BlockedKeyNotFound(`Sink ${sink} has no blocked key ${key}.`, { sink, key });
