import { CommitFeedConsumer, FeedConsumerMoved, InvalidCursor, parseInput, type CommittedFeedConsumer } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { consumerNotFound, parseConsumerName } from './feed-consumer-input';
import { commitConsumer, findConsumerPlace, readStorePlaces, type ConsumerKey } from './feed-consumer.sql';
import { assertReadable, decodeFeedCursor, encodeFeedCursor, floorOf, isBefore, laterPlace } from './feed-cursor';

/**
 * Moves a consumer's cursor from where its reader began to where it has come, and says that it is alive. A compare-and-set: of two readers under
 * one name the second is told where the first has come.
 *
 * Input     from, to: cursors of the feed; the same one twice moves nothing.
 * Locks     the consumer's row; one statement.   Writes: feed_consumers.
 * Errors    FeedConsumerNotFound, FeedConsumerMoved (with the cursor as it is), CursorExpired (another store), InvalidCursor (backwards: rewind).
 * Repeat    safe; `replayed: true`.
 */
export async function commitFeedConsumer(
  at: At,
  { tenantId, name, ...input }: ConsumerKey & CommitFeedConsumer,
): Promise<CommittedFeedConsumer> {
  const { from: fromText, to: toText } = parseInput(CommitFeedConsumer, input);
  const key = { tenantId, name: parseConsumerName(name) };
  const [from, to] = [decodeFeedCursor(fromText), decodeFeedCursor(toText)];
  if (isBefore(to, from)) throw backwards();
  const on = executorOf(at);
  if (from.storeId === to.storeId && (await commitConsumer(on, key, { storeId: to.storeId, from, to }))) {
    return { cursor: toText, replayed: from.tx === to.tx && from.position === to.position };
  }
  const actual = await findConsumerPlace(on, key);
  if (actual === undefined) throw consumerNotFound(key.name);
  const bounds = await readStorePlaces(on);
  for (const cursor of [from, to]) assertReadable({ ...cursor, ...laterPlace(cursor, floorOf(bounds)) }, bounds);
  const cursor = encodeFeedCursor(actual.storeId, actual);
  if (actual.tx === to.tx && actual.position === to.position) return { cursor, replayed: true };
  throw new FeedConsumerMoved(`The consumer ${key.name} stands elsewhere: go on from data.cursor.`, { name: key.name, cursor });
}

function backwards(): InvalidCursor {
  const reason = 'a commit leads forwards; rewind the consumer to read events again';
  return new InvalidCursor(`${reason[0]?.toUpperCase()}${reason.slice(1)}.`, { reason });
}
