import { FeedConsumerNotFound, identifier, parseInput } from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { readStorePlaces } from './feed-consumer.sql';
import { assertReadable, decodeFeedCursor, floorOf, laterPlace } from './feed-cursor';
import type { FeedPlace } from './feed.sql';

export const parseConsumerName = (name: string): string => parseInput(identifier, name);

export const consumerNotFound = (name: string): FeedConsumerNotFound =>
  new FeedConsumerNotFound(`No consumer of the feed is registered under the name ${name}.`, { name });

/** Where `start`, `now` or a cursor lies. Errors: CursorExpired, InvalidCursor. */
export async function placeToStartAt(on: SqlExecutor, start: string): Promise<FeedPlace> {
  const cursor = start === 'start' || start === 'now' ? undefined : decodeFeedCursor(start);
  const store = await readStorePlaces(on);
  if (cursor !== undefined) {
    assertReadable(cursor, store);
    return cursor;
  }
  const { headTx, headPosition } = store;
  const floor = floorOf(store);
  if (start === 'start') return floor;
  return headTx === null || headPosition === null ? floor : laterPlace(floor, { tx: headTx, position: headPosition });
}
