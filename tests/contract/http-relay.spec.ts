import { createClient, type Client } from '@runplane/client';
import { readFeed, refused } from '@runplane/outbox';
import { appendEvents, aSinkByHand } from '@runplane/outbox/testing';
import { useApi } from '../support/test-api';

// What an operator does about a sink, by the client over HTTP.

const api = useApi({ database: { checkInvariants: false } });

test('an operator sees and changes by the client what stands before a sink: status, blocked keys, why, skip, retry, republish, disable and enable', async () => {
  const url = await api.app.listen({ port: 0, host: '127.0.0.1' });
  const client: Client = createClient({ url, apiKey: api.adminKey, retry: { attemptsMax: 1 } });
  const { pass, arrived } = await aSinkByHand(api.db, {
    name: 'one',
    tenants: ['one'],
    answer: ({ sequence }) => (sequence === 2 ? refused('invalid', 'no') : undefined),
  });
  const { cursor: start } = await readFeed(api.db.sql, { tenantId: undefined, after: 'now' });
  for (const sessionId of ['a', 'b']) await appendEvents(api.db.sql, { tenantId: 'one', sessionId, sequence: 1, count: 4 });
  await pass();

  expect((await client.listSinks()).sinks).toEqual(expect.arrayContaining([expect.objectContaining({ sink: 'one', parkedCount: 2 })]));
  expect(await client.getSink('one')).toMatchObject({ heldCount: 6, backlogCount: 6, shardsHeld: 32, oldestParkedAt: expect.any(String) });
  const { keys, cursor } = await client.listBlockedKeys('one', { state: 'parked', limit: 1 });
  expect(keys).toMatchObject([{ state: 'parked', heldCount: 3, attempts: 1, reason: 'invalid' }]);
  const rest = await client.listBlockedKeys('one', { cursor: cursor ?? '', state: 'parked' });
  expect(new Set([...keys, ...rest.keys].map(({ key }) => key))).toEqual(new Set(['one/a', 'one/b']));
  const [blocked] = (await client.listBlockedKeys('one', { key: 'one/a' })).keys;
  expect(await client.explainSink('one', { key: 'one/a' })).toMatchObject({ cause: 'parked', key: 'one/a' });
  expect(await client.explainSink('one', { shard: blocked?.shard ?? 0 })).toMatchObject({ cause: 'up-to-date' });
  expect(await client.skipBlockedEvent('one', { key: 'one/a', cursor: blocked?.cursor ?? '' })).toMatchObject({
    key: 'one/a',
    heldCount: 2,
  });
  expect(await client.retryBlockedKeys('one', { key: 'one/b' })).toMatchObject({ keyCount: 1, more: false });
  await pass();
  await pass();
  expect([arrived('a'), arrived('b')]).toEqual([[1, 3, 4], [1]]);

  expect(await client.republish('one', { from: start })).toMatchObject({ shards: 2, to: 'now' });
  await expect(client.republish('one', { from: start })).rejects.toMatchObject({ code: 'republish_running', status: 409 });
  expect(await client.disableSink('one')).toEqual({ sink: 'one', enabled: false, changed: true, more: false });
  expect(await client.enableSink('one', { start: 'oldest' })).toEqual({ sink: 'one', enabled: true, changed: true, more: false });
  expect(await client.getSink('one')).toMatchObject({ heldCount: 0, replayingShards: 0 });
  expect((await client.listWebhookDeliveries('one')).deliveries).toEqual([]);
  await expect(client.getSink('none')).rejects.toMatchObject({ code: 'sink_not_found', status: 404 });
});
