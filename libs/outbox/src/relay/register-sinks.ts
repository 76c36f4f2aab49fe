import { parseInput, SinkName } from '@runplane/contracts';
import { inTransaction, type Db, type Tx } from '@runplane/database';
import { placeToStartAt } from '../feed-consumer-input';
import type { FeedPlace } from '../feed.sql';
import { holdOutboxFloor } from '../outbox-floor.sql';
import { insertSink, writeSinkKind } from './sink.sql';
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
  const sink = { name: parseInput(SinkName, name), kind };
  // A start that retention has passed meanwhile keeps no relay of a known sink from its work.
  if (!(await writeSinkKind(tx, sink))) await insertSink(tx, { ...sink, start: await startOf(tx, start) });
}

/** The place behind which a sink begins: at or above the floor of retention, which stays where it is until this transaction ends. */
export async function startOf(tx: Tx, start: string): Promise<FeedPlace> {
  await holdOutboxFloor(tx);
  return placeToStartAt(tx, start === 'oldest' ? 'start' : start);
}
