import { parseInput, RewindFeedConsumer, type FeedConsumer } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { consumerNotFound, parseConsumerName, placeToStartAt } from './feed-consumer-input';
import { moveConsumer, type ConsumerKey } from './feed-consumer.sql';
import { holdOutboxFloor } from './outbox-floor.sql';
import { getFeedConsumer } from './read-feed-consumers';

/**
 * Puts a consumer to any place that is left: back, so that it reads events again, or forwards over those that it shall not read. A reader that is
 * at work learns of it at its next commit.
 *
 * Input     to: a cursor, `start` or `now`.
 * Locks     floor (FOR SHARE) → consumer.   Writes: feed_consumers.
 * Errors    FeedConsumerNotFound, CursorExpired (another store, below the floor), InvalidCursor.   Repeat: safe.
 */
export async function rewindFeedConsumer(tx: Tx, { tenantId, name, ...input }: ConsumerKey & RewindFeedConsumer): Promise<FeedConsumer> {
  const { to } = parseInput(RewindFeedConsumer, input);
  const key = { tenantId, name: parseConsumerName(name) };
  await holdOutboxFloor(tx);
  const moved = await moveConsumer(tx, key, await placeToStartAt(tx, to));
  if (!moved) throw consumerNotFound(key.name);
  return getFeedConsumer(tx, key);
}
