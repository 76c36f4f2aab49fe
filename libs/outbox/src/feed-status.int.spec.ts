import { FEED_CAUSES, FEED_SCAN_ROWS_MAX, type FeedFilter } from '@runplane/contracts';
import { eventually, openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import { explainFeed } from './explain-feed';
import { explainFeedFacts } from './feed-explanation';
import { getFeedStatus } from './feed-status';
import { createOutbox } from './outbox';
import { readFeed } from './read-feed';
import { getFeedConsumer } from './read-feed-consumers';
import { testStreams } from './testing/test-streams';

const t = useDatabase({ checkInvariants: false });
const append = testStreams();
const tenantId = 'acme';
const head = async (): Promise<string> => {
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: 'now' })).cursor;
};

describe('a filter of the feed', () => {
  async function readAll(after: string, filter: FeedFilter): Promise<{ found: string[]; pages: number }> {
    const found: string[] = [];
    for (let pages = 1, cursor = after; ; pages += 1) {
      const page = await readFeed(t.db.sql, { tenantId, after: cursor, filter, limit: 2 });
      found.push(...page.events.map(({ streamId, sequence, type }) => `${streamId} ${sequence} ${type}`));
      cursor = page.cursor;
      if (!page.more) {
        expect(cursor).toBe(page.head);
        return { found, pages };
      }
    }
  }

  test('leaves out what is of another kind, type, session or run, within an append of many events too', async () => {
    const from = await head();
    await append(t.db.sql, { streamId: 's1', count: 3, batch: true, type: 'turn/start' });
    await append(t.db.sql, { streamId: 's2', type: 'turn/end' });
    await append(t.db.sql, { streamId: 'r1', type: 'tool_call', count: 2 });
    await append(t.db.sql, { streamId: 's1', type: 'turn/end', count: 2, batch: true });
    await append(t.db.sql, { streamId: 's1', type: 'turn/end', tenantId: 'globex' });
    await t.db.pool.query(`UPDATE runplane.outbox_events SET stream = 'run', run_id = 'r1', session_id = 's2' WHERE stream_id = 'r1'`);
    await t.db.pool.query(`UPDATE runplane.session_events SET run_id = 'r1' WHERE session_id = 's1' AND sequence = 2`);
    await t.db.pool.query(
      `UPDATE runplane.outbox_events o SET shard = x.shard FROM runplane.outbox_events x WHERE o.stream_id = 'r1' AND x.stream_id = 's2'`,
    );
    await waitForHorizon(t.db);
    const of = async (filter: FeedFilter) => (await readAll(from, filter)).found;

    expect(await of({ stream: 'run' })).toEqual(['r1 1 tool_call', 'r1 2 tool_call']);
    expect(await of({ types: ['turn/end'] })).toEqual(['s2 1 turn/end', 's1 4 turn/end', 's1 5 turn/end']);
    expect(await of({ types: ['turn/end', 'tool_call'], sessionId: 's2' })).toEqual(['s2 1 turn/end', 'r1 1 tool_call', 'r1 2 tool_call']);
    expect(await of({ sessionId: 's1', types: ['turn/start'] })).toEqual(['s1 1 turn/start', 's1 2 turn/start', 's1 3 turn/start']);
    expect(await of({ runId: 'r1' })).toEqual(['s1 2 turn/start', 'r1 1 tool_call', 'r1 2 tool_call']);
    expect(await of({ types: ['never'] })).toEqual([]);
    await expect(readFeed(t.db.sql, { tenantId, filter: { types: [] } })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test('never makes a call look at more events than the bound, however many an append has', async () => {
    const from = await head();
    const rows = FEED_SCAN_ROWS_MAX / 500 + 1;
    for (let n = 0; n < rows; n += 1) await append(t.db.sql, { streamId: 'long', count: 500, batch: true });
    await append(t.db.sql, { streamId: 'long', type: 'rare' });
    await waitForHorizon(t.db);

    const first = await readFeed(t.db.sql, { tenantId, after: from, filter: { types: ['rare'] } });
    const { found } = await readAll(from, { types: ['rare'] });

    expect([first.events.length, first.more]).toEqual([0, true]);
    expect(found).toEqual([`long ${rows * 500 + 1} rare`]);
  });
});

describe('why the feed stands still', () => {
  test('is said with the program, its age and its statement without what stands between quotes; a tenant is told no more than that it waits', async () => {
    await waitForHorizon(t.db);
    const holder = await openClient(t.url);
    await holder.query(`SET application_name = 'nightly-report'`);
    await holder.query('BEGIN; SELECT pg_current_xact_id()');
    await holder.query(`SELECT 'password of ann' AS secret`);
    await append(t.db.sql, { streamId: 'waits', count: 3, batch: true });
    // The oldest transaction of the whole server: those that other spec files have open end by themselves.
    await eventually(async () => (await getFeedStatus(t.db, { tenantId: undefined })).heldBackBy?.application === 'nightly-report');
    await t.db.pool.query(
      `UPDATE runplane.outbox_events SET created_at = runplane.app_now() - interval '1 minute' WHERE stream_id = 'waits'`,
    );

    const status = await getFeedStatus(t.db, { tenantId: undefined });
    const why = await explainFeed(t.db, { tenantId: undefined });
    const ofTenant = await explainFeed(t.db, { tenantId });
    const ofOther = await getFeedStatus(t.db, { tenantId: 'globex' });
    await holder.end();

    expect(status.held).toMatchObject({ events: 3, isExact: true });
    expect(status.heldBackBy).toMatchObject({
      kind: 'transaction',
      application: 'nightly-report',
      state: 'idle in transaction',
      query: `SELECT '…' AS secret`,
    });
    expect(why).toMatchObject({ cause: 'held-back', isMoving: false, consumer: null });
    expect(why.sentence).toMatch(/^3 events are committed and not readable yet, for 6\d s: process \d+ of nightly-report in database /);
    expect(ofTenant.cause).toBe('held-back');
    expect(JSON.stringify(ofTenant)).not.toMatch(/nightly|secret/);
    expect(ofOther.held.events).toBe(0);
    await waitForHorizon(t.db);
    expect((await explainFeed(t.db, { tenantId: undefined })).cause).toBe('flowing');
  });

  test('names a consumer that is behind, silent or below the floor, and a store that needs a rebase', async () => {
    const from = await head();
    await createOutbox(t.db).registerFeedConsumer({ tenantId, name: 'crm', after: from });
    const cause = async () => (await explainFeed(t.db, { tenantId, consumer: 'crm' })).cause;
    expect(await cause()).toBe('consumer-up-to-date');
    await append(t.db.sql, { streamId: 'w' });
    await waitForHorizon(t.db);
    expect(await cause()).toBe('consumer-behind');
    await t.db.pool.query(`UPDATE runplane.feed_consumers SET seen_at = seen_at - interval '1 hour'`);
    expect(await cause()).toBe('consumer-silent');
    await t.db.pool.query(`UPDATE runplane.feed_consumers SET tx = 0, position = 0; UPDATE runplane.outbox_floor SET tx = 1`);
    expect(await cause()).toBe('consumer-expired');
    await t.db.pool.query(`UPDATE runplane.store SET timeline = timeline + 1`);
    expect(await explainFeed(t.db, { tenantId: undefined })).toMatchObject({ cause: 'rebase-needed', isMoving: false });
    await t.db.pool.query(`UPDATE runplane.store SET timeline = timeline - 1; UPDATE runplane.outbox_floor SET tx = 0`);
    await expect(explainFeed(t.db, { tenantId, consumer: 'nobody' })).rejects.toMatchObject({ code: 'feed_consumer_not_found' });
    expect(FEED_CAUSES).toHaveLength(7);
  });

  test('names a prepared transaction, and says what it cannot see', async () => {
    const { consumers, ...status } = await getFeedStatus(t.db, { tenantId: undefined });
    const held = { ...status, consumers, held: { events: 1, isExact: false, oldestMs: 60_000 } };
    const nothing = { pid: null, application: null, database: null, state: null, waitsFor: null, query: null };
    const sentence = (heldBackBy: Parameters<typeof explainFeedFacts>[0]['heldBackBy']) =>
      explainFeedFacts({ ...held, heldBackBy }).sentence;

    expect(sentence({ ...nothing, kind: 'prepared-transaction', forMs: 9_000, state: 'gid-1', database: 'shop' })).toContain(
      'prepared transaction gid-1 in database shop',
    );
    expect(sentence({ ...nothing, kind: 'unknown', forMs: 9_000 })).toContain('pg_read_all_stats');
    expect(sentence(null)).toContain('1 or more event is committed');
    expect((await getFeedConsumer(t.db, { tenantId, name: 'crm' })).name).toBe('crm');
  });
});
