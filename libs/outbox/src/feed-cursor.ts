import { CursorExpired, defineCursor, type Cursor } from '@runplane/contracts';
import { z } from 'zod';
import type { FeedPlace } from './feed.sql';

const BIGINT_MAX = 2n ** 63n - 1n;
const place = z
  .string()
  .regex(/^\d{1,19}$/)
  .refine((digits) => /^\d+$/.test(digits) && BigInt(digits) <= BIGINT_MAX);
const Parts = z.strictObject({ store: z.string(), tx: place, position: place });
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

/**
 * A cursor of another store, or beyond the horizon of this one (a restored copy that was not rebased), must not read as "no news": the
 * reader would wait for ever. It is told where this store's feed begins.
 */
export function assertOfThisStore(cursor: FeedCursor, store: { storeId: string; horizon: bigint }): void {
  if (cursor.storeId === store.storeId && cursor.tx <= store.horizon) return;
  throw new CursorExpired('The cursor belongs to another store: read again from data.oldestCursor.', {
    oldestCursor: encodeFeedCursor(store.storeId, FEED_START),
    reason: 'other-store',
  });
}
