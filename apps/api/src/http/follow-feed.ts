import type { Db } from '@runplane/database';
import { streamFeed, type ReadFeed } from '@runplane/outbox';
import type { FastifyReply } from 'fastify';
import { followStream, type StreamPart } from './follow-stream';
import { feedEventFrame, placeFrame } from './sse';
import type { Waiters } from './waiters';

export interface FollowFeed extends Omit<ReadFeed, 'after'> {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly after: string;
  /** The client does not know the place yet, and would begin at another one if it was cut before its first frame. */
  readonly tellsStart: boolean;
}

/** Sends the feed for as long as the client stays. See followStream. */
export function followFeed(reply: FastifyReply, { waiters, ...feed }: FollowFeed): Promise<void> {
  return followStream(reply, waiters, (signal) => partsOf(feed, signal));
}

async function* partsOf({ db, tellsStart, ...feed }: Omit<FollowFeed, 'waiters'>, signal: AbortSignal): AsyncGenerator<StreamPart> {
  if (tellsStart) yield { frames: [placeFrame(feed.after)] };
  for await (const { events, cursor } of streamFeed(db, { ...feed, signal })) {
    const frames = events.map(feedEventFrame);
    yield { frames: events.at(-1)?.cursor === cursor ? frames : [...frames, placeFrame(cursor)] };
  }
}
