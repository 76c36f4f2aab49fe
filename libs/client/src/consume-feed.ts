import type { CommittedFeedConsumer, FeedConsumer, FeedEvent, FeedFilter, FeedPage, RegisteredFeedConsumer } from '@runplane/contracts';
import { WAIT_SECONDS_MAX } from '@runplane/contracts';
import { isProblem, type ProblemError } from './errors';
import type { FeedOptions } from './feed';
import { PATIENT, pauseFor, pauseMs, type RetryPolicy } from './retry';
import type { CallOptions } from './transport';

// A registered reader of the feed at work. What it keeps: every event is handled at least once, in the order of the feed, however often the process
// dies; the place moves behind a page only when the handler has come back from it. A page is handled again after a death between handler and commit,
// after a failure of the handler, and by each of several processes under one name: drop what you know by `eventId`.

/** Works on a page; the same one again when it throws. `signal` aborts when the loop is told to stop: finish, or throw. */
export type FeedHandler = (
  events: readonly FeedEvent[],
  page: { readonly cursor: string; readonly signal: AbortSignal },
) => Promise<void> | void;

/** Events behind the place were removed by retention, or the store is another one. */
export interface FeedGap {
  readonly cursor: string;
  readonly oldestCursor: string;
  readonly reason: string;
}

export interface ConsumeFeed extends FeedFilter {
  /** Under which the store keeps the place. */
  readonly name: string;
  readonly handle: FeedHandler;
  /** Where a name that is new begins: `start` (default), `now` or a cursor. */
  readonly after?: string | undefined;
  /** Events of a page at most. */
  readonly limit?: number | undefined;
  readonly waitSeconds?: number | undefined;
  /** Ends the loop when the handler is back from its page and that is committed; consumeFeed returns then. */
  readonly signal?: AbortSignal | undefined;
  /** Told of each failure of the handler; it may throw, which ends the loop. Without it the page is tried again for ever, with pauses. */
  readonly onFailure?:
    ((failure: { readonly error: unknown; readonly failures: number; readonly events: readonly FeedEvent[] }) => void) | undefined;
  /** `skip` goes on with the oldest event that is left. Without it a gap ends the loop with the refusal (`cursor_expired`). */
  readonly onGap?: ((gap: FeedGap) => 'skip' | 'stop') | undefined;
  /** How often a reader without news says that it is alive, so that retention waits for it. */
  readonly seenEveryMs?: number | undefined;
}

interface FeedReader {
  readFeed(options: FeedOptions): Promise<FeedPage>;
  registerFeedConsumer(name: string, options: CallOptions & { after?: string }): Promise<RegisteredFeedConsumer>;
  commitFeedConsumer(name: string, places: { from: string; to: string }, options?: CallOptions): Promise<CommittedFeedConsumer>;
  rewindFeedConsumer(name: string, to: string, options?: CallOptions): Promise<FeedConsumer>;
}

const SEEN_EVERY_MS = 30_000;
/** What the last commit of a loop that stops may take. */
const LAST_COMMIT_MS = 5_000;

/** Reads, has handled, commits; returns when the signal aborts. Errors: refusals (unknown name, revoked key, cursor_expired), what onFailure throws. */
export async function consumeFeed(feed: FeedReader, policy: RetryPolicy, options: ConsumeFeed): Promise<void> {
  const { signal = new AbortController().signal } = options;
  try {
    await consume(feed, policy, { ...options, signal });
  } catch (error) {
    if (!signal.aborted || error !== signal.reason) throw error;
  }
}

async function consume(feed: FeedReader, policy: RetryPolicy, options: ConsumeFeed & { signal: AbortSignal }): Promise<void> {
  const {
    name,
    after,
    signal,
    limit,
    stream,
    types,
    sessionId,
    runId,
    waitSeconds = WAIT_SECONDS_MAX,
    seenEveryMs = SEEN_EVERY_MS,
  } = options;
  const patient = { signal, retry: PATIENT };
  const { consumer } = await feed.registerFeedConsumer(name, { ...patient, ...(after === undefined ? {} : { after }) });
  let seenAt = performance.now();
  for (let cursor = consumer.cursor; !signal.aborted;) {
    const page = await readOrSkip(feed, options, { ...patient, limit, stream, types, sessionId, runId, waitSeconds, after: cursor });
    if (typeof page === 'string') {
      cursor = page;
      continue;
    }
    if (page.events.length > 0) await handlePage(page, policy, options);
    if (page.cursor === cursor && performance.now() - seenAt < seenEveryMs) continue;
    cursor = await commit(feed, name, { from: cursor, to: page.cursor }, signal);
    seenAt = performance.now();
  }
}

/** A page, or where to go on when the place of the reader is none any more. */
async function readOrSkip(
  feed: FeedReader,
  { name, onGap, signal }: ConsumeFeed,
  page: FeedOptions & { after: string },
): Promise<FeedPage | string> {
  try {
    return await feed.readFeed(page);
  } catch (error) {
    if (!isProblem(error, 'cursor_expired') || onGap?.(toGap(error, page.after)) !== 'skip') throw error;
    return (await feed.rewindFeedConsumer(name, 'start', { retry: PATIENT, signal })).cursor;
  }
}

function toGap({ data }: ProblemError, cursor: string): FeedGap {
  const { oldestCursor = '', reason = '' } = data as { oldestCursor?: string; reason?: string };
  return { cursor, oldestCursor, reason };
}

/** Until the handler has come back from it. */
async function handlePage(
  { events, cursor }: FeedPage,
  policy: RetryPolicy,
  { handle, onFailure, signal }: ConsumeFeed & { signal: AbortSignal },
): Promise<void> {
  for (let failures = 1; ; failures += 1) {
    try {
      await handle(events, { cursor, signal });
      return;
    } catch (error) {
      signal.throwIfAborted();
      onFailure?.({ error, failures, events });
      await pauseFor(pauseMs(failures, policy), signal);
    }
  }
}

/** What has been handled is committed also by a loop that stops. Returns where the consumer stands: elsewhere, if others moved it. */
async function commit(feed: FeedReader, name: string, places: { from: string; to: string }, signal: AbortSignal): Promise<string> {
  try {
    const committed = await feed.commitFeedConsumer(name, places, { retry: PATIENT, signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
      return feed.commitFeedConsumer(name, places, { retry: { elapsedMsMax: LAST_COMMIT_MS } });
    });
    return committed.cursor;
  } catch (error) {
    if (!isProblem(error, 'feed_consumer_moved')) throw error;
    return (error.data as { cursor: string }).cursor;
  }
}
