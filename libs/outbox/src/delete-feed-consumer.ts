import type { DeletedFeedConsumer } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { consumerNotFound, parseConsumerName } from './feed-consumer-input';
import { removeConsumer, type ConsumerKey } from './feed-consumer.sql';
import { encodeFeedCursor } from './feed-cursor';

/** Forgets a consumer: retention waits for it no longer. Returns where it stood. Errors: FeedConsumerNotFound. One statement, locks its row. */
export async function deleteFeedConsumer(at: At, { tenantId, name }: ConsumerKey): Promise<DeletedFeedConsumer> {
  const key = { tenantId, name: parseConsumerName(name) };
  const removed = await removeConsumer(executorOf(at), key);
  if (removed === undefined) throw consumerNotFound(key.name);
  return { name: key.name, cursor: encodeFeedCursor(removed.storeId, removed) };
}
