import { FEED_CONSUMERS_MAX, type FeedEvent } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon, waitUntilBlocked } from '@runplane/database/testing';
import { commitFeedConsumer } from './commit-feed-consumer';
import { deleteFeedConsumer } from './delete-feed-consumer';
import { encodeFeedCursor } from './feed-cursor';
import { createOutbox } from './outbox';
import { pruneOutboxOnce } from './prune-outbox-once';
import { readFeed } from './read-feed';
import { getFeedConsumer, listFeedConsumers } from './read-feed-consumers';
import { registerFeedConsumer } from './register-feed-consumer';
import { disableSink, enableSink, registerSinks } from './relay';
import { testStreams } from './testing/test-streams';

// Consumers, and the retention that waits for them: what is removed is behind everybody who is known, and old.

const t = useDatabase({ checkInvariants: false });
const append = testStreams();
const tenantId = 'acme';
const outbox = () => createOutbox(t.db);

const head = async (): Promise<string> => {
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: 'now' })).cursor;
};

async function written(events: Parameters<typeof append>[1]): Promise<FeedEvent[]> {
  const from = await head();
  await append(t.db.sql, events);
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: from, limit: 200 })).events;
}
const cursorAt = (events: readonly FeedEvent[], index: number): string => events[index]?.cursor ?? '';
const standsAt = async (name: string): Promise<string> => (await getFeedConsumer(t.db, { tenantId, name })).cursor;

// Consumers hold retention, whoever made them.
afterEach(() => t.db.pool.query(`DELETE FROM runplane.feed_consumers`));

describe('a consumer', () => {
  test('registers once, and is told where it stands and how far behind', async () => {
    const from = await head();
    await written({ streamId: 'c1', count: 3 });
    await append(t.db.sql, { streamId: 'theirs', tenantId: 'globex', count: 4 });
    await waitForHorizon(t.db);

    const made = await outbox().registerFeedConsumer({ tenantId, name: 'billing', after: from });
    const again = await outbox().registerFeedConsumer({ tenantId, name: 'billing', after: 'now' });
    await outbox().registerFeedConsumer({ tenantId: undefined, name: 'billing', after: from });

    expect(made).toMatchObject({
      created: true,
      consumer: { name: 'billing', tenantId, cursor: from, isExpired: false, holdsFloor: true },
    });
    expect(made.consumer.lag).toMatchObject({ events: 3, isExact: true });
    expect(again).toMatchObject({ created: false, consumer: { cursor: from } });
    expect(await getFeedConsumer(t.db, { tenantId: undefined, name: 'billing' })).toMatchObject({ tenantId: null, lag: { events: 7 } });
    const names = async (scope: Parameters<typeof listFeedConsumers>[1]) =>
      (await listFeedConsumers(t.db, scope)).consumers.map((each) => each.tenantId);
    expect(await names({ tenantId })).toEqual([tenantId]);
    expect(await names({ tenantId: 'globex' })).toEqual([]);
    expect(await names({ tenantId: undefined, all: true })).toEqual([null, tenantId]);
    await expect(getFeedConsumer(t.db, { tenantId: 'globex', name: 'billing' })).rejects.toMatchObject({ code: 'feed_consumer_not_found' });
  });

  test('commits from where it stood: the second of two is told where the first has come', async () => {
    const events = await written({ streamId: 'c2', count: 4 });
    await outbox().registerFeedConsumer({ tenantId, name: 'two', after: cursorAt(events, 0) });
    const commit = (from: number, to: number) =>
      commitFeedConsumer(t.db, { tenantId, name: 'two', from: cursorAt(events, from), to: cursorAt(events, to) });

    expect(await commit(0, 2)).toEqual({ cursor: cursorAt(events, 2), replayed: false });
    expect(await commit(0, 2)).toEqual({ cursor: cursorAt(events, 2), replayed: true }); // its answer was lost
    await expect(commit(0, 1)).rejects.toMatchObject({ code: 'feed_consumer_moved', data: { name: 'two', cursor: cursorAt(events, 2) } });
    await expect(commit(2, 1)).rejects.toMatchObject({ code: 'invalid_cursor' });
    const both = await Promise.allSettled([
      commit(2, 3),
      commit(2, 3),
      commitFeedConsumer(t.db, { tenantId, name: 'two', from: cursorAt(events, 2), to: await head() }),
    ]);
    expect(both.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(0);
    expect([cursorAt(events, 3), await head()]).toContain(await standsAt('two'));
  });

  test('is refused a place that this store has not reached, and one of another store', async () => {
    const from = await head();
    await outbox().registerFeedConsumer({ tenantId, name: 'lost', after: from });
    const { storeId } = (await t.db.pool.query<{ storeId: string }>('SELECT store_id AS "storeId" FROM runplane.store')).rows[0] ?? {
      storeId: '',
    };
    for (const to of [
      encodeFeedCursor(storeId, { tx: 2n ** 60n, position: 0n }),
      encodeFeedCursor('another', { tx: 2n ** 60n, position: 1n }),
    ]) {
      await expect(commitFeedConsumer(t.db, { tenantId, name: 'lost', from, to })).rejects.toMatchObject({
        code: 'cursor_expired',
        data: { reason: 'other-store' },
      });
      await expect(outbox().rewindFeedConsumer({ tenantId, name: 'lost', to })).rejects.toMatchObject({ code: 'cursor_expired' });
    }
    const forged = encodeFeedCursor('a\0', { tx: 1n, position: 1n });
    await expect(commitFeedConsumer(t.db, { tenantId, name: 'lost', from: forged, to: forged })).rejects.toMatchObject({
      code: 'invalid_cursor',
    });
    await expect(commitFeedConsumer(t.db, { tenantId, name: 'nobody', from, to: from })).rejects.toMatchObject({
      code: 'feed_consumer_not_found',
    });
    expect(await standsAt('lost')).toBe(from);
  });

  test('is rewound, and its reader learns of it at its next commit', async () => {
    const events = await written({ streamId: 'c3', count: 3 });
    await outbox().registerFeedConsumer({ tenantId, name: 'again', after: cursorAt(events, 1) });

    await outbox().rewindFeedConsumer({ tenantId, name: 'again', to: cursorAt(events, 0) });

    await expect(
      commitFeedConsumer(t.db, { tenantId, name: 'again', from: cursorAt(events, 1), to: cursorAt(events, 2) }),
    ).rejects.toMatchObject({ code: 'feed_consumer_moved', data: { cursor: cursorAt(events, 0) } });
    expect(await outbox().rewindFeedConsumer({ tenantId, name: 'again', to: 'now' })).toMatchObject({ lag: { events: 0, ms: 0 } });
    await expect(outbox().rewindFeedConsumer({ tenantId: 'globex', name: 'again', to: 'now' })).rejects.toMatchObject({
      code: 'feed_consumer_not_found',
    });
    expect(await deleteFeedConsumer(t.db, { tenantId, name: 'again' })).toMatchObject({ name: 'again' });
    await expect(deleteFeedConsumer(t.db, { tenantId, name: 'again' })).rejects.toMatchObject({ code: 'feed_consumer_not_found' });
  });

  test('is one of a hundred that a tenant may have', async () => {
    await t.db.pool.query(
      `INSERT INTO runplane.feed_consumers (scope, name, tx, position) SELECT 'crowd', 'c' || n, 0, 0 FROM generate_series(1, $1::int) n`,
      [FEED_CONSUMERS_MAX],
    );
    await expect(outbox().registerFeedConsumer({ tenantId: 'crowd', name: 'one-more', after: 'now' })).rejects.toMatchObject({
      code: 'feed_consumers_full',
    });
    expect(await outbox().registerFeedConsumer({ tenantId: 'crowd', name: 'c1', after: 'now' })).toMatchObject({ created: false });
  });
});

describe('retention', () => {
  const rowsLeft = async (streamId: string): Promise<number> =>
    (await t.db.pool.query(`SELECT FROM runplane.outbox_events WHERE stream_id = $1`, [streamId])).rowCount ?? 0;
  const old = { keepMs: 60_000 };
  /** As if every mark so far had been made two minutes ago. */
  const age = () => t.db.pool.query(`UPDATE runplane.outbox_marks SET marked_at = marked_at - interval '2 minutes'`);
  /** Everything that can be read now is old. */
  const markAsOld = async (): Promise<void> => {
    await waitForHorizon(t.db);
    await t.db.pool.query('DELETE FROM runplane.outbox_marks'); // else the next one is not due yet
    await pruneOutboxOnce(t.db, old);
    await age();
  };

  test('removes what has been readable for long enough, in batches, and a cursor below it is told where to go on', async () => {
    const events = await written({ streamId: 'r1', count: 25 });
    await markAsOld();
    await written({ streamId: 'r1-young' });
    const preview = await pruneOutboxOnce(t.db, { ...old, dryRun: true });
    expect(preview.changed).toBeGreaterThanOrEqual(25);
    expect(await rowsLeft('r1')).toBe(25);

    const first = await pruneOutboxOnce(t.db, { ...old, limit: preview.changed - 5, batch: 10 });
    const left = await rowsLeft('r1');
    const second = await pruneOutboxOnce(t.db, { ...old, batch: 10 });

    expect([first.changed, first.more, left]).toEqual([preview.changed - 5, true, 5]);
    expect(second).toMatchObject({ changed: 5, more: false, heldBy: 'age', floor: cursorAt(events, 24) });
    expect(preview.floor).toBe(second.floor);
    expect(await rowsLeft('r1-young')).toBe(1);
    const refusal = await readFeed(t.db.sql, { tenantId, after: cursorAt(events, 3) }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'cursor_expired', data: { reason: 'below-retention', oldestCursor: second.floor } });
    for (const after of ['start', second.floor]) {
      const page = await readFeed(t.db.sql, { tenantId, after });
      expect(page.events.map(({ streamId }) => streamId)).toEqual(['r1-young']);
    }
    await expect(outbox().registerFeedConsumer({ tenantId, name: 'late', after: cursorAt(events, 3) })).rejects.toMatchObject({
      code: 'cursor_expired',
    });
    expect((await outbox().registerFeedConsumer({ tenantId, name: 'late' })).consumer.cursor).toBe(second.floor);
    await deleteFeedConsumer(t.db, { tenantId, name: 'late' });
  });

  test('waits for consumers, but not for one that has been silent for too long', async () => {
    const events = await written({ streamId: 'r2', count: 5 });
    await outbox().registerFeedConsumer({ tenantId, name: 'slow', after: cursorAt(events, 1) });
    await outbox().registerFeedConsumer({ tenantId: undefined, name: 'audit', after: cursorAt(events, 3) });
    await markAsOld();

    expect(await pruneOutboxOnce(t.db, old)).toMatchObject({ heldBy: 'consumer acme/slow', floor: cursorAt(events, 1) });
    expect(await rowsLeft('r2')).toBe(3);
    await commitFeedConsumer(t.db, { tenantId, name: 'slow', from: cursorAt(events, 1), to: cursorAt(events, 4) });
    expect(await pruneOutboxOnce(t.db, old)).toMatchObject({ heldBy: 'consumer audit', floor: cursorAt(events, 3) });
    await t.db.pool.query(`UPDATE runplane.feed_consumers SET seen_at = seen_at - interval '20 days' WHERE name = 'audit'`);
    expect(await pruneOutboxOnce(t.db, old)).toMatchObject({ floor: cursorAt(events, 4) });
    expect(await getFeedConsumer(t.db, { tenantId: undefined, name: 'audit' })).toMatchObject({ isExpired: true, holdsFloor: false });
    expect(await outbox().rewindFeedConsumer({ tenantId: undefined, name: 'audit', to: 'start' })).toMatchObject({
      isExpired: false,
      holdsFloor: true,
    });
  });

  test('waits for what a sink has not got, also for what it holds behind a blocked key', async () => {
    const events = await written({ streamId: 'r2-sink', count: 5 });
    await registerSinks(t.db, [{ name: 'kafka', kind: 'kafka', start: cursorAt(events, 1) }]);
    await t.db.pool.query(
      `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position) SELECT 'kafka', shard, partition_key, tx, position FROM runplane.outbox_events WHERE stream_id = 'r2-sink' AND sequence = 1`,
    );
    await markAsOld();
    const gone = async () => (await pruneOutboxOnce(t.db, old), 5 - (await rowsLeft('r2-sink')));

    expect([await gone(), (await pruneOutboxOnce(t.db, old)).heldBy]).toEqual([0, 'sink kafka']);
    await t.db.pool.query(`DELETE FROM runplane.outbox_held`);
    expect(await gone()).toBe(2);
    await inTransaction(t.db, (tx) => disableSink(tx, { sink: 'kafka' }));
    expect(await gone()).toBe(5);
    const { cursor } = await readFeed(t.db.sql, { tenantId, after: 'now' }); // of an outbox that is empty now
    expect(await readFeed(t.db.sql, { tenantId, after: cursor })).toMatchObject({ events: [], cursor, more: false });
    await expect(inTransaction(t.db, (tx) => enableSink(tx, { sink: 'kafka' }))).rejects.toMatchObject({ code: 'cursor_expired' });
    expect(await inTransaction(t.db, (tx) => enableSink(tx, { sink: 'kafka', start: 'oldest' }))).toMatchObject({ enabled: true });
    await t.db.pool.query(`DELETE FROM runplane.outbox_sinks`);
  });

  test('has passed what a disabled sink held, or was to send again: it is not enabled as if nothing were lost; its start is never asked for again', async () => {
    const [first = ''] = (await written({ streamId: 'r2-held', count: 3 })).map(({ cursor }) => cursor);
    await waitForHorizon(t.db);
    await registerSinks(t.db, [{ name: 'hook', kind: 'webhook', start: 'now' }]); // the cursors stand at the floor to be
    await t.db.pool.query(
      `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position) SELECT 'hook', shard, partition_key, tx, position FROM runplane.outbox_events WHERE stream_id = 'r2-held' AND sequence = 3`,
    );
    await inTransaction(t.db, (tx) => disableSink(tx, { sink: 'hook' }));
    await markAsOld();
    await pruneOutboxOnce(t.db, old);
    expect(await rowsLeft('r2-held')).toBe(0);
    const enabling = () => inTransaction(t.db, (tx) => enableSink(tx, { sink: 'hook' }));

    await expect(enabling()).rejects.toMatchObject({ code: 'cursor_expired' });
    await t.db.pool.query(`DELETE FROM runplane.outbox_held`);
    await t.db.pool.query(
      `UPDATE runplane.outbox_shards SET (replay_tx, replay_position, replay_to_tx, replay_to_position) = (1, 1, 1, 2) WHERE sink = 'hook' AND shard = 3`,
    );
    await expect(enabling()).rejects.toMatchObject({ code: 'cursor_expired' });
    await t.db.pool.query(
      `UPDATE runplane.outbox_shards SET (replay_tx, replay_position, replay_to_tx, replay_to_position) = (NULL, NULL, NULL, NULL) WHERE sink = 'hook'`,
    );
    expect(await enabling()).toMatchObject({ enabled: true });

    await registerSinks(t.db, [{ name: 'hook', kind: 'webhook', start: first }]);
    await expect(registerSinks(t.db, [{ name: 'new', kind: 'webhook', start: first }])).rejects.toMatchObject({ code: 'cursor_expired' });
    await t.db.pool.query(`DELETE FROM runplane.outbox_sinks`);
  });

  test('counts the age from when an event could be read: what a long transaction brings late is young', async () => {
    const client = await openClient(t.url);
    await client.query('BEGIN');
    await append({ query: async (statement) => (await client.query(statement.text, statement.values)).rows }, { streamId: 'r3' });
    await client.query(`UPDATE runplane.outbox_events SET created_at = created_at - interval '1 day' WHERE stream_id = 'r3'`);
    await pruneOutboxOnce(t.db, old);
    await age();
    await client.query('COMMIT');
    await client.end();
    await waitForHorizon(t.db);

    await pruneOutboxOnce(t.db, old);

    expect(await rowsLeft('r3')).toBe(1);
    expect(await pruneOutboxOnce(t.db, { keepMs: null })).toMatchObject({ changed: 0 });
  });

  test('does not overtake a consumer that is just registering', async () => {
    const events = await written({ streamId: 'r4', count: 3 });
    await markAsOld();
    const { pruning } = await inTransaction(t.db, async (tx) => {
      await registerFeedConsumer(tx, { tenantId, name: 'just-now', after: cursorAt(events, 0) });
      const pass = pruneOutboxOnce(t.db, old);
      await waitUntilBlocked(t.db, 1);
      return { pruning: pass };
    });

    expect(await pruning).toMatchObject({ heldBy: 'consumer acme/just-now', floor: cursorAt(events, 0) });
    expect(await rowsLeft('r4')).toBe(2);
  });

  test('of many processes at a time removes each row once', async () => {
    await written({ streamId: 'r5', count: 60 });
    await markAsOld();
    const passes = await Promise.all([1, 2, 3].map(() => pruneOutboxOnce(t.db, { ...old, batch: 7 })));
    await pruneOutboxOnce(t.db, old);
    expect(passes.reduce((sum, { changed }) => sum + changed, 0)).toBeLessThanOrEqual(70);
    expect(await rowsLeft('r5')).toBe(0);
  });
});
