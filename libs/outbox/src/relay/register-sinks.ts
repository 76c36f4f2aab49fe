import { parseInput, SinkName } from '@runplane/contracts';
import { inTransaction, readStore, type Db, type Tx } from '@runplane/database';
import { assertOfThisStore, decodeFeedCursor, FEED_START } from '../feed-cursor';
import type { FeedPlace } from '../feed.sql';
import { insertSink, readHead } from './sink.sql';
import type { Sink } from './sink';

/**
 * Makes the sinks that the store does not know yet, each at its start. A known sink stays where it is, whatever its configuration says of a start.
 *
 * Errors    InvalidCursor, CursorExpired for the start of a new sink; InvalidRequest.   Repeat: safe.
 */
export async function registerSinks(db: Db, sinks: readonly Pick<Sink, 'name' | 'kind' | 'start'>[]): Promise<void> {
  for (const sink of sinks) await inTransaction(db, (tx) => registerSink(tx, sink));
}

async function registerSink(tx: Tx, { name, kind, start }: Pick<Sink, 'name' | 'kind' | 'start'>): Promise<void> {
  await insertSink(tx, { name: parseInput(SinkName, name), kind, start: await startOf(tx, start) });
}

/** The place behind which a reader begins. */
export async function startOf(tx: Tx, start: string): Promise<FeedPlace> {
  const head = await readHead(tx);
  if (start === 'oldest') return FEED_START;
  if (start === 'now') return head.place;
  const cursor = decodeFeedCursor(start);
  const { storeId } = await readStore(tx);
  assertOfThisStore(cursor, { storeId, horizon: head.horizon });
  return cursor;
}
