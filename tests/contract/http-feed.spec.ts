import { waitForHorizon } from '@runplane/database/testing';
import { encodeFeedCursor } from '@runplane/outbox';
import { makeWorld } from '../support/route-samples';
import { RawClient } from '../support/sse-client';
import { OTHER_TENANT, useApi } from '../support/test-api';
import { until } from '../support/until';

const api = useApi();

interface Item {
  readonly eventId: string;
  readonly runId: string | null;
  readonly streamId: string;
  readonly sequence: number;
  readonly tenantId: string;
}

async function readAll(after: string, limit: number, key?: string): Promise<Item[]> {
  const found: Item[] = [];
  for (let cursor = after; ;) {
    const { status, body, text } = await api.call('GET', `/v1/feed?after=${cursor}&limit=${limit}`, { key });
    if (status !== 200) throw new Error(text);
    found.push(...body.events);
    if (!body.more && body.events.length === 0) return found;
    cursor = body.cursor;
  }
}

describe('the feed', () => {
  test('has every event of the tenant once, each stream in its order, whatever the size of a page', async () => {
    const worlds = [await makeWorld(api), await makeWorld(api), await makeWorld(api)];
    for (const { runId, epoch } of worlds) {
      await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });
    }

    await waitForHorizon(api.db);

    const byOne = await readAll('start', 1);
    const byMany = await readAll('start', 200);

    expect(byOne).toEqual(byMany);
    expect(new Set(byOne.map(({ eventId }) => eventId)).size).toBe(byOne.length);
    for (const { runId } of worlds) {
      const { body } = await api.call('GET', `/v1/runs/${runId}/events?limit=500`);
      const inFeed = byOne.filter((item) => item.streamId === runId).map(({ sequence, eventId }) => ({ seq: sequence, id: eventId }));
      expect(inFeed).toEqual(body.events.map(({ seq, id }: { seq: number; id: string }) => ({ seq, id })));
    }
    expect(await readAll('start', 200, await api.makeKey(['feed:read'], OTHER_TENANT))).toEqual([]);
  });

  test('takes types with commas, repeated, and both at once', async () => {
    const { runId, epoch } = await makeWorld(api);
    await api.call('POST', `/v1/runs/${runId}/events`, {
      body: { epoch, events: [{ type: 'assistant_message', payload: { text: 'x' } }] },
    });
    await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });
    await waitForHorizon(api.db);
    const typesOf = async (query: string) => {
      const { status, body } = await api.call('GET', `/v1/feed?runId=${runId}&stream=run&${query}`);
      return [status, (body.events as { type: string }[] | undefined)?.map(({ type }) => type)];
    };

    const all = [200, ['user_message', 'assistant_message', 'terminal_status']];
    expect(await typesOf('type=user_message,assistant_message,terminal_status')).toEqual(all);
    expect(await typesOf('type=user_message&type=assistant_message&type=terminal_status')).toEqual(all);
    expect(await typesOf('type=user_message,assistant_message&type=terminal_status')).toEqual(all);
    for (const refused of ['type=', 'type=user_message,', 'type=user_message&type=', 'stream=run']) {
      expect([refused, await typesOf(refused)]).toEqual([refused, [400, undefined]]);
    }
  });

  test('keeps its cursors apart beyond 2^53', async () => {
    await api.db.pool.query('ALTER TABLE runplane.outbox_events ALTER COLUMN position RESTART WITH 9007199254740993');
    const from = (await api.call('GET', '/v1/feed?after=now')).body.cursor;
    const { runId } = await makeWorld(api);
    await waitForHorizon(api.db);

    const items = (await readAll(from, 1)).filter((item) => item.runId === runId && item.streamId === runId);

    expect(items.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
  });

  test('says that a cursor is of another store, and where to go on', async () => {
    const { status, body } = await api.call(
      'GET',
      `/v1/feed?after=${encodeFeedCursor('00000000-0000-4000-8000-000000000000', { tx: 1n, position: 1n })}`,
    );

    expect([status, body.code, body.data.reason]).toEqual([410, 'cursor_expired', 'other-store']);
    expect((await api.call('GET', `/v1/feed?after=${body.data.oldestCursor}`)).status).toBe(200);
  });
});

describe('registered consumers over HTTP', () => {
  const at = '/v1/feed/consumers/crm';

  test('keep a place by compare-and-set, each tenant its own', async () => {
    const from = (await api.call('GET', '/v1/feed?after=now')).body.cursor as string;
    const made = await api.call('PUT', at, { body: { after: from } });
    const again = await api.call('PUT', at, { body: { after: 'start' } });
    const { runId } = await makeWorld(api); // it forgets the consumers of worlds before
    await api.call('PUT', at, { body: { after: from } });
    await waitForHorizon(api.db);
    const page = (await api.call('GET', `/v1/feed?after=${from}&limit=200`)).body;
    const commit = (places: object, key?: string) => api.call('POST', `${at}/commit`, { body: places, key });

    const committed = await commit({ from, to: page.cursor });
    const late = await commit({ from, to: page.events[0].cursor });
    const foreign = await commit({ from, to: page.cursor }, await api.makeKey(['feed:read'], OTHER_TENANT));
    const why = await api.call('GET', '/v1/feed/why?consumer=crm');

    expect([made.status, again.status, again.body.consumer.cursor]).toEqual([201, 200, from]);
    expect(page.events.some((event: Item) => event.runId === runId)).toBe(true);
    expect([committed.status, committed.body]).toEqual([200, { cursor: page.cursor, replayed: false }]);
    expect([late.status, late.body.code, late.body.data.cursor]).toEqual([409, 'feed_consumer_moved', page.cursor]);
    expect([foreign.status, foreign.body.code]).toEqual([404, 'feed_consumer_not_found']);
    expect([why.status, why.body.cause]).toEqual([200, 'consumer-up-to-date']);
    expect((await api.call('GET', '/v1/feed/status')).body).toMatchObject({
      heldBackBy: null,
      consumers: expect.arrayContaining([expect.objectContaining({ name: 'crm', tenantId: 'acme' })]),
    });
    expect((await api.call('GET', '/v1/store/feed')).text).not.toContain('crm');
  });
});

describe('the feed as server-sent events', () => {
  let address: Promise<string> | undefined;
  const listening = () => (address ??= api.app.listen({ host: '127.0.0.1', port: 0 }));

  test('sends each event under its cursor, passes over what the filter leaves out, and goes on behind the last id', async () => {
    const url = await listening();
    const authorization = `Bearer ${api.adminKey}`;
    await waitForHorizon(api.db);
    const from = (await api.call('GET', '/v1/feed?after=now')).body.cursor as string;
    const first = new RawClient(url, `/v1/feed/stream?after=${from}&stream=run&type=backend_status`, { authorization });
    const { runId, epoch } = await makeWorld(api);
    const created = await until('the first frame has come', () => first.frames[0]);
    first.cut();
    await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });
    const second = new RawClient(url, '/v1/feed/stream?stream=run&type=terminal_status', {
      authorization,
      'last-event-id': created.id ?? '',
    });
    const ended = await until('the second frame has come', () => second.frames[0]);
    second.cut();
    const refused = await api.call('GET', `/v1/feed/stream?after=${encodeFeedCursor('another', { tx: 1n, position: 1n })}`);

    expect([created.event, ended.event]).toEqual(['backend_status', 'terminal_status']);
    expect([created.data, ended.data]).toMatchObject([
      { runId, cursor: created.id, sequence: 1 },
      { runId, cursor: ended.id },
    ]);
    expect([refused.status, refused.body.code]).toEqual([410, 'cursor_expired']);
  });

  test('from now on tells its place at once: a client that is cut before the first event misses nothing', async () => {
    const url = await listening();
    const authorization = `Bearer ${api.adminKey}`;
    await waitForHorizon(api.db);
    const first = new RawClient(url, '/v1/feed/stream?stream=run&type=backend_status', { authorization });
    const place = await until('it says where now is', () => /^id: (\S+)\n\n/m.exec(first.body)?.[1]);
    first.cut();
    const { runId } = await makeWorld(api);

    const second = new RawClient(url, '/v1/feed/stream?stream=run&type=backend_status', { authorization, 'last-event-id': place });
    const created = await until('the event has come', () => second.frames[0]);
    second.cut();

    expect(created.data).toMatchObject({ runId, sequence: 1 });
  });
});
