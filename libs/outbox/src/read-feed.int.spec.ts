import { newId, partitionOf, type CursorExpired, type FeedEvent, type FeedPage } from '@runplane/contracts';
import { inTransaction, sql, type SqlExecutor } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { feedTx, insertOutboxEvents } from './append.sql';
import { encodeFeedCursor } from './feed-cursor';
import { feedProbe, feedStreams, readFeed, waitForFeed } from './read-feed';

// Rows of streams that no aggregate stands behind: what sessions and runs do is tested with them.
const t = useDatabase({ checkInvariants: false });

const sequences = new Map<string, number>();

/** Puts the next events of a stream into the feed, as an operation's statement does. */
async function append(on: SqlExecutor, { tenantId = 'acme', streamId = 'a', count = 1 } = {}): Promise<void> {
  const first = (sequences.get(streamId) ?? 0) + 1;
  sequences.set(streamId, first + count - 1);
  const { partitionKey, shard } = partitionOf(tenantId, streamId);
  const ids = Array.from({ length: count }, () => newId('evt'));
  const source = sql`(SELECT ${feedTx} AS tx, ${shard}::smallint AS shard, ${partitionKey}::text AS partition_key, ${tenantId}::text AS tenant_id,
    'session'::runplane.outbox_stream AS stream, ${streamId}::text AS stream_id, ${first - 1}::int + e.place AS sequence, 'test' AS type, NULL::text AS project_id,
    ${streamId}::text AS session_id, NULL::text AS run_id, NULL::text AS command_id, e.id AS event_id, json_build_object('n', ${first - 1}::int + e.place) AS data,
    runplane.app_now() AS created_at FROM unnest(${ids}::text[]) WITH ORDINALITY AS e (id, place))`;
  await on.query(insertOutboxEvents(source, { rows: 'many' }));
}

/** Reads on until the horizon, page by page, as a client does. */
async function readAll(
  after: string,
  options: { tenantId?: string; limit?: number } = {},
): Promise<{ events: FeedEvent[]; cursor: string; pages: number }> {
  await waitForHorizon(t.db);
  return readOn(after, options);
}
async function readOn(
  after: string,
  { tenantId, limit = 200 }: { tenantId?: string; limit?: number } = {},
): Promise<{ events: FeedEvent[]; cursor: string; pages: number }> {
  const events: FeedEvent[] = [];
  for (let pages = 1, cursor = after; ; pages += 1) {
    const page = await readFeed(t.db.sql, { tenantId, after: cursor, limit });
    events.push(...page.events);
    cursor = page.cursor;
    if (!page.more) return { events, cursor, pages };
  }
}
/** The horizon, beyond everything written so far. */
async function head(): Promise<string> {
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: 'now' })).cursor;
}
const shown = (events: readonly FeedEvent[]) => events.map(({ streamId, sequence }) => `${streamId} ${sequence}`);

let beside: pg.Client;
beforeAll(async () => {
  beside = await openClient(t.url);
});
afterAll(() => beside.end());

describe('a reader', () => {
  test('that starts at the start gets everything, in order, each once', async () => {
    await append(t.db.sql, { streamId: 'r1', count: 3 });
    await append(t.db.sql, { streamId: 'r2', count: 2 });
    await append(t.db.sql, { streamId: 'r1' });
    const { events } = await readAll('start');
    expect(shown(events)).toEqual(['r1 1', 'r1 2', 'r1 3', 'r2 1', 'r2 2', 'r1 4']);
    expect(events[0]).toMatchObject({ stream: 'session', sessionId: 'r1', tenantId: 'acme', type: 'test', data: { n: 1 }, runId: null });
    expect(new Set(events.map(({ cursor }) => cursor)).size).toBe(events.length);
  });

  test('that starts now gets what is committed from now on', async () => {
    await append(t.db.sql, { streamId: 'before' });
    await waitForHorizon(t.db);
    const page = await readFeed(t.db.sql, { tenantId: undefined, after: 'now' });
    expect(page).toEqual({ events: [], cursor: page.head, head: page.head, more: false });
    await append(t.db.sql, { streamId: 'after' });
    expect(shown((await readAll(page.cursor)).events)).toEqual(['after 1']);
  });

  test.each([1, 2, 7])('that takes %i at a time gets the same', async (limit) => {
    const { events } = await readAll('start');
    const paged = await readAll('start', { limit });
    expect(paged.events).toEqual(events);
    expect(paged.pages).toBeGreaterThan(events.length / limit - 1);
  });

  test('may go on behind any event it has seen', async () => {
    const { events } = await readAll('start');
    for (const [place, event] of events.entries()) expect((await readAll(event.cursor)).events).toEqual(events.slice(place + 1));
  });

  test('of a tenant gets its own events alone, and its cursor passes the others', async () => {
    const from = await head();
    await append(t.db.sql, { streamId: 'theirs', tenantId: 'globex', count: 5 });
    await append(t.db.sql, { streamId: 'ours' });
    expect(shown((await readAll(from, { tenantId: 'acme', limit: 1 })).events)).toEqual(['ours 1']);
    expect(shown((await readAll(from, { tenantId: 'globex', limit: 2 })).events)).toHaveLength(5);
    expect((await readAll(from, { tenantId: 'nobody' })).events).toEqual([]);
  });

  test('of a quiet tenant looks at 10,000 rows a call, says that there is more, and comes to its event', async () => {
    const from = await head();
    await append(t.db.sql, { streamId: 'busy', tenantId: 'globex', count: 10_500 });
    await append(t.db.sql, { streamId: 'quiet' });
    await waitForHorizon(t.db);
    const first = await readFeed(t.db.sql, { tenantId: 'acme', after: from, limit: 50 });
    expect({ events: first.events, more: first.more }).toEqual({ events: [], more: true });
    expect(shown((await readAll(from, { tenantId: 'acme' })).events)).toEqual(['quiet 1']);
  });

  test('that has read everything stands at the horizon and says so', async () => {
    const { cursor } = await readAll('start');
    const page = await readFeed(t.db.sql, { tenantId: undefined, after: cursor });
    expect(page).toMatchObject({ events: [], more: false });
    expect(page.cursor).toBe(page.head);
  });
});

describe('the horizon', () => {
  test('is held back by a transaction that may still write below it: nothing is skipped', async () => {
    const from = await head();
    await beside.query('BEGIN; SELECT pg_current_xact_id()');
    await append(t.db.sql, { streamId: 'fast' });
    const held = await readFeed(t.db.sql, { tenantId: undefined, after: from });
    expect(held.events).toEqual([]);

    await beside.query('ROLLBACK');
    expect(shown((await readAll(held.cursor)).events)).toEqual(['fast 1']);
  });

  test('is not held back by a transaction that only reads', async () => {
    const from = await head();
    await beside.query('BEGIN; SELECT count(*) FROM runplane.outbox_events');
    await append(t.db.sql, { streamId: 'free' });
    const { events } = await readAll(from);
    await beside.query('COMMIT');
    expect(shown(events)).toEqual(['free 1']);
  });

  test('lets a slow transaction’s events through when it commits, before those of later ones', async () => {
    const from = await head();
    const slow: SqlExecutor = { query: async (statement) => (await beside.query(statement.text, statement.values)).rows };
    await beside.query('BEGIN');
    await append(slow, { streamId: 'slow' });
    await append(t.db.sql, { streamId: 'later' });
    expect((await readOn(from)).events).toEqual([]);
    await beside.query('COMMIT');
    expect(shown((await readAll(from)).events)).toEqual(['slow 1', 'later 1']);
  });

  test('passes over what was rolled back', async () => {
    const from = await head();
    const gone = inTransaction(t.db, async (tx) => {
      await append(tx, { streamId: 'gone' });
      throw new Error('changed my mind');
    });
    await expect(gone).rejects.toThrow('changed my mind');
    await append(t.db.sql, { streamId: 'kept' });
    expect(shown((await readAll(from)).events)).toEqual(['kept 1']);
  });
});

describe('a cursor', () => {
  test('of another store is refused with the place to go on from', async () => {
    const foreign = encodeFeedCursor('another-store', { tx: 1n, position: 1n });
    const refusal = await readFeed(t.db.sql, { tenantId: undefined, after: foreign }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'cursor_expired', data: { reason: 'other-store' } });
    const { oldestCursor } = (refusal as CursorExpired).data;
    expect(shown((await readAll(oldestCursor)).events)).toEqual(shown((await readAll('start')).events));
  });

  test('beyond the horizon (a restored copy) is refused, and does not wait for ever', async () => {
    const { rows } = await t.db.pool.query<{ id: string }>('SELECT store_id AS id FROM runplane.store');
    const beyond = encodeFeedCursor(rows[0]?.id ?? '', { tx: 2n ** 60n, position: 0n });
    await expect(readFeed(t.db.sql, { tenantId: undefined, after: beyond })).rejects.toMatchObject({ code: 'cursor_expired' });
  });

  test.each(['', 'x', 'e30', '{"v":1}', encodeFeedCursor('s', { tx: 1n, position: 1n }).slice(1)])(
    'that nobody has made is refused: %j',
    async (after) => {
      await expect(readFeed(t.db.sql, { tenantId: undefined, after })).rejects.toMatchObject({ code: 'invalid_cursor' });
    },
  );
});

test('places beyond 2^53 stay exact: no repeat, no skip, no equal cursors', async () => {
  const from = await head();
  await t.db.pool.query('ALTER TABLE runplane.outbox_events ALTER COLUMN position RESTART WITH 9007199254740993');
  await t.db.pool.query('UPDATE runplane.store SET tx_offset = 9007199254740993'); // as a rebase does: above every number given so far
  await append(t.db.sql, { streamId: 'huge', count: 5 });
  const { events } = await readAll(from, { limit: 1 });
  expect(shown(events)).toEqual(['huge 1', 'huge 2', 'huge 3', 'huge 4', 'huge 5']);
  expect(new Set(events.map(({ cursor }) => cursor)).size).toBe(5);
});

describe('waiting for the feed', () => {
  const wait = async (request: Partial<Parameters<typeof waitForFeed>[1]> = {}): Promise<FeedPage> =>
    waitForFeed(t.db, { tenantId: 'acme', after: await head(), waitMs: 10_000, ...request });

  test('answers at once when there is something', async () => {
    const after = await head();
    await append(t.db.sql, { streamId: 'w1' });
    await waitForHorizon(t.db);
    expect(shown((await wait({ after })).events)).toEqual(['w1 1']);
  });

  test('is woken by an event, and not by another tenant’s', async () => {
    const waiting = wait({ after: await head() });
    await append(t.db.sql, { streamId: 'w-theirs', tenantId: 'globex' });
    t.db.changed(feedStreams('globex'));
    await append(t.db.sql, { streamId: 'w2' });
    await waitForHorizon(t.db);
    t.db.changed(feedStreams('acme'));
    expect(shown((await waiting).events)).toEqual(['w2 1']);
  });

  test('ends with an empty page after its time, and on abort', async () => {
    expect(await wait({ waitMs: 20 })).toMatchObject({ events: [], more: false });
    const abort = new AbortController();
    const waiting = wait({ signal: abort.signal });
    abort.abort();
    expect(await waiting).toMatchObject({ events: [] });
  });

  test('sleeps through what other tenants write', async () => {
    let looks = 0;
    const query: SqlExecutor['query'] = (statement) => ((looks += 1), t.db.sql.query(statement));
    const waiting = waitForFeed({ ...t.db, sql: { query } }, { tenantId: 'acme', after: await head(), waitMs: 300 });
    for (let hint = 0; hint < 20; hint += 1) {
      t.db.changed(feedStreams('globex'));
      await delay(5);
    }
    expect(await waiting).toMatchObject({ events: [] });
    expect(looks).toBe(1);
  });

  test('does not read on over a backlog of others when its time is over, or its client gone', async () => {
    const after = await head();
    await append(t.db.sql, { tenantId: 'globex', streamId: 'backlog', count: 10_001 });
    await append(t.db.sql, { streamId: 'behind' });
    await waitForHorizon(t.db);
    expect(await waitForFeed(t.db, { tenantId: 'acme', after, waitMs: 0 })).toMatchObject({ events: [], more: true });
    const aborted = { waitMs: 10_000, signal: AbortSignal.abort() };
    expect(await waitForFeed(t.db, { tenantId: 'acme', after, ...aborted })).toMatchObject({ events: [], more: true });
    expect(shown((await waitForFeed(t.db, { tenantId: 'acme', after, waitMs: 10_000 })).events)).toEqual(['behind 1']);
  });

  test('asks with the tip of the feed whether there is news', async () => {
    const tip = async () => (await feedProbe.versionsOf(t.db.sql, ['feed'])).get('feed');
    const before = await tip();
    expect(await tip()).toBe(before);
    await append(t.db.sql, { streamId: 'w3' });
    await waitForHorizon(t.db);
    expect(await tip()).not.toBe(before);
  });
});
