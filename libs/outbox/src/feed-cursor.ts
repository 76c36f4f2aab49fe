import { CursorExpired, defineCursor, identifier, type Cursor } from '@runplane/contracts';
import { z } from 'zod';
import type { FeedPlace } from './feed.sql';

const BIGINT_MAX = 2n ** 63n - 1n;
const place = z
  .string()
  .regex(/^\d{1,19}$/)
  .refine((digits) => /^\d+$/.test(digits) && BigInt(digits) <= BIGINT_MAX);
const Parts = z.strictObject({ store: identifier, tx: place, position: place });
const feedCursor: Cursor<z.infer<typeof Parts>> = defineCursor('feed', Parts);

/** Everything lies behind it: the floor of a feed from which nothing has been removed. */
export const FEED_START: FeedPlace = { tx: 0n, position: 0n };

export function encodeFeedCursor(storeId: string, { tx, position }: FeedPlace): string {
  return feedCursor.encode({ store: storeId, tx: String(tx), position: String(position) });
}

export interface FeedCursor extends FeedPlace {
  readonly storeId: string;
}

/** Throws InvalidCursor for anything that encodeFeedCursor has not made. */
export function decodeFeedCursor(text: string): FeedCursor {
  const { store, tx, position } = feedCursor.decode(text);
  return { storeId: store, tx: BigInt(tx), position: BigInt(position) };
}

export const isBefore = (a: FeedPlace, b: FeedPlace): boolean => a.tx < b.tx || (a.tx === b.tx && a.position < b.position);

export const laterPlace = (a: FeedPlace, b: FeedPlace): FeedPlace => (isBefore(a, b) ? b : a);

/** What a cursor is judged by. */
export interface FeedBounds {
  readonly storeId: string;
  readonly horizon: bigint;
  readonly floorTx: bigint;
  readonly floorPosition: bigint;
}

export const floorOf = ({ floorTx, floorPosition }: FeedBounds): FeedPlace => ({ tx: floorTx, position: floorPosition });

/**
 * A cursor of another store, or beyond the horizon of this one (a restored copy that was not rebased), must not read as "no news": the
 * reader would wait for ever. One below the floor must not go on in silence behind events that are gone. Each is told where to begin.
 */
export function assertReadable(cursor: FeedCursor, bounds: FeedBounds): void {
  const floor = floorOf(bounds);
  const oldestCursor = encodeFeedCursor(bounds.storeId, floor);
  if (cursor.storeId !== bounds.storeId || cursor.tx > bounds.horizon)
    throw new CursorExpired('The cursor belongs to another store: read again from data.oldestCursor.', {
      oldestCursor,
      reason: 'other-store',
    });
  if (isBefore(cursor, floor))
    throw new CursorExpired('Events behind the cursor have been removed by their age: go on from data.oldestCursor.', {
      oldestCursor,
      reason: 'below-retention',
    });
}
