import { waitForHorizon } from '@runplane/database/testing';
import { encodeFeedCursor } from '@runplane/outbox';
import { makeWorld } from '../support/route-samples';
import { OTHER_TENANT, useApi } from '../support/test-api';

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
