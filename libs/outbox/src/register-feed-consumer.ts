import { FEED_CONSUMERS_MAX, FeedConsumersFull, parseInput, RegisterFeedConsumer, type RegisteredFeedConsumer } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { parseConsumerName, placeToStartAt } from './feed-consumer-input';
import { countConsumers, insertConsumer, type ConsumerKey } from './feed-consumer.sql';
import { holdOutboxFloor } from './outbox-floor.sql';
import { getFeedConsumer } from './read-feed-consumers';

/**
 * Registers a reader of the feed, whose place the store keeps from then on, and for which retention waits. One that is there stays as it is.
 *
 * Input     after: a cursor, `start` (the oldest event that is left; default) or `now`.
 * Locks     floor (FOR SHARE) → consumer.   Writes: feed_consumers.
 * Errors    CursorExpired (another store, below the floor), InvalidCursor, FeedConsumersFull.
 * Repeat    safe; `created: false`, whatever `after` says.
 */
export async function registerFeedConsumer(
  tx: Tx,
  { tenantId, name, ...input }: ConsumerKey & RegisterFeedConsumer,
): Promise<RegisteredFeedConsumer> {
  const { after } = parseInput(RegisterFeedConsumer, input);
  const key = { tenantId, name: parseConsumerName(name) };
  await holdOutboxFloor(tx);
  const created = await insertConsumer(tx, key, await placeToStartAt(tx, after));
  if (created && (await countConsumers(tx, key)) > FEED_CONSUMERS_MAX)
    throw new FeedConsumersFull('The tenant has as many registered consumers as it may: delete one that nobody uses.', {
      consumersMax: FEED_CONSUMERS_MAX,
    });
  return { consumer: await getFeedConsumer(tx, key), created };
}
