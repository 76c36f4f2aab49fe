import {
  FEED_SCAN_ROWS_MAX,
  FeedFilter,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  parseInput,
  partitionOf,
  type FeedEvent,
  type FeedPage,
} from '@runplane/contracts';
import type { Db, SqlExecutor, Stream, StreamProbe } from '@runplane/database';
import { assertReadable, decodeFeedCursor, encodeFeedCursor, FEED_START, floorOf, laterPlace, type FeedCursor } from './feed-cursor';
import { NO_FILTER, readFeedRows, readFeedTip, type FeedPlace, type FeedRow, type RowFilter } from './feed.sql';

export interface ReadFeed {
  /** Only this tenant's events; undefined is for the operator's own readers (the relay). */
  readonly tenantId: string | undefined;
  /** A cursor of an earlier page, `start` (default: the oldest event that is left), or `now`: the head, behind which everything is still to come. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
  /** Only these events; the cursor moves over the others. */
  readonly filter?: FeedFilter | undefined;
}

/**
 * One page of the feed: committed events in feed order, each once for a reader that follows `cursor` (FEED-1).
 *
 * Returns   `cursor` to go on from, also when the page is empty; `head`, the last place below the horizon; `more`: read on at once.
 * Errors    InvalidRequest (filter), InvalidCursor, CursorExpired (another store, below the floor).
 * Repeat    safe; reads only, one statement, no lock; looks at FEED_SCAN_ROWS_MAX rows at most, whatever the filter leaves.
 */
export async function readFeed(on: SqlExecutor, { after = 'start', limit = LIST_ROWS_DEFAULT, ...which }: ReadFeed): Promise<FeedPage> {
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const filter = rowFilter(which);
  if (after === 'now') return emptyPage(await readFeedRows(on, { after: FEED_START, filter: NO_FILTER, limit: 0, scanRows: 1 }));
  const cursor: FeedCursor | undefined = after === 'start' ? undefined : decodeFeedCursor(after);
  const found = await readFeedRows(on, { after: cursor ?? 'floor', filter, limit: rowsMax, scanRows: FEED_SCAN_ROWS_MAX });
  const store = storeOf(found);
  if (cursor !== undefined) assertReadable(cursor, store);
  const events = found.flatMap((row) => feedEvent(row));
  const next = nextPlace(found, { after: cursor ?? floorOf(store), full: store.cut || events.length === rowsMax });
  return { events, cursor: encodeFeedCursor(store.storeId, next.place), head: headCursor(store), more: next.more };
}

/** All events of a session, its runs' included, stand under one key and so in one shard. */
function rowFilter({ tenantId, filter = {} }: Pick<ReadFeed, 'tenantId' | 'filter'>): RowFilter {
  const { stream, types, sessionId, runId } = parseInput(FeedFilter, filter);
  const shard = tenantId === undefined || sessionId === undefined ? undefined : partitionOf(tenantId, sessionId).shard;
  return { tenantId, stream, types, sessionId, runId, shard };
}

/**
 * The same, waiting for the first event up to `waitMs`, and reading on over other tenants' events meanwhile. Holds no connection while it
 * waits; ends early, with an empty page, on abort and on shutdown.
 */
export async function waitForFeed(db: Db, request: ReadFeed & { waitMs: number; signal?: AbortSignal | undefined }): Promise<FeedPage> {
  const deadline = performance.now() + request.waitMs;
  const subscription = db.hub.subscribe(request.tenantId === undefined ? 'feed' : feedOf(request.tenantId));
  try {
    let page = await readFeed(db.sql, request);
    while (page.events.length === 0) {
      const { signal } = request;
      const timeoutMs = deadline - performance.now();
      if (timeoutMs <= 0 || signal?.aborted === true) return page; // also where there is more: the next call goes on
      if (!page.more && (await subscription.next({ timeoutMs, ...(signal === undefined ? {} : { signal }) })) !== 'changed') return page;
      page = await readFeed(db.sql, { ...request, after: page.cursor });
    }
    return page;
  } finally {
    subscription.close();
  }
}

/** How long a stream sleeps at most without a look: a lost hint, or news that the filter leaves out, must not keep its cursor from moving. */
const LOOK_EVERY_MS = 30_000;

/**
 * Page after page, for as long as the caller reads: the feed has no end. Pages without events are given too where the cursor has moved, so that
 * whoever resumes need not look at the same rows again. Holds no connection while it waits; ends on abort and on shutdown.
 */
export async function* streamFeed(
  db: Db,
  { signal, ...request }: Omit<ReadFeed, 'after'> & { after: string; signal: AbortSignal },
): AsyncGenerator<FeedPage> {
  const subscription = db.hub.subscribe(request.tenantId === undefined ? 'feed' : feedOf(request.tenantId));
  let cursor = request.after;
  try {
    while (!signal.aborted) {
      const page = await readFeed(db.sql, { ...request, after: cursor });
      if (page.cursor !== cursor) yield page;
      cursor = page.cursor;
      if (page.more) continue;
      const woken = await subscription.next({ timeoutMs: LOOK_EVERY_MS, signal });
      if (woken === 'closed' || woken === 'aborted') return;
    }
  } finally {
    subscription.close();
  }
}

const feedOf = (tenantId: string): Stream => `feed:${tenantId}`;

/** What has changed with an event of a tenant. Readers of one tenant sleep through what others write: each look costs the store a statement. */
export const feedStreams = (tenantId: string): readonly Stream[] => ['feed', feedOf(tenantId)];

/** What the hub asks while somebody waits for the feed. */
export const feedProbe: StreamProbe = {
  kind: 'feed',
  async versionsOf(on, keys) {
    const tip = await readFeedTip(on);
    return new Map(keys.map((key) => [key, tip]));
  },
};

/** What each row says of the store. */
function storeOf(found: readonly FeedRow[]): FeedRow {
  const [first] = found;
  if (first === undefined) throw new Error('runplane.store has no row: run the migrations');
  return first;
}

/**
 * The last event below the horizon, and not the horizon itself: a crash of the server gives the numbers of transactions that left nothing
 * durable out again, and a reader that stood beyond them would miss what comes under them. Whoever can be seen has committed, durably, so
 * that no number up to its own comes again.
 */
const headOf = (store: FeedRow): FeedPlace => {
  const { headTx, headPosition } = store;
  // Where retention has removed the very last event, the floor is its place.
  return laterPlace(floorOf(store), headTx === null || headPosition === null ? FEED_START : { tx: headTx, position: headPosition });
};

const headCursor = (store: FeedRow): string => encodeFeedCursor(store.storeId, headOf(store));

function emptyPage(found: readonly FeedRow[]): FeedPage {
  const head = headCursor(storeOf(found));
  return { events: [], cursor: head, head, more: false };
}

/** A full page ends at its last event; one cut by the scan limit at the last row looked at; any other has read everything up to the head. */
function nextPlace(found: readonly FeedRow[], { after, full }: { after: FeedPlace; full: boolean }): { place: FeedPlace; more: boolean } {
  const { scanTx, scanPosition } = storeOf(found);
  const last = found.at(-1);
  if (full && last?.tx != null && last.position != null) return { place: { tx: last.tx, position: last.position }, more: true };
  if (scanTx !== null && scanPosition !== null) return { place: { tx: scanTx, position: scanPosition }, more: true };
  return { place: laterPlace(after, headOf(storeOf(found))), more: false };
}

function feedEvent(row: FeedRow): FeedEvent[] {
  const { storeId, tx, position, stream, streamId, sequence, type, tenantId, eventId, data, time } = row;
  if (tx === null || position === null || stream === null || streamId === null || sequence === null || type === null) return [];
  if (tenantId === null || eventId === null || data === null || time === null) return [];
  const { projectId, sessionId, runId, commandId } = row;
  const cursor = encodeFeedCursor(storeId, { tx, position });
  return [{ cursor, eventId, stream, streamId, sequence, type, tenantId, projectId, sessionId, runId, commandId, time, data }];
}
