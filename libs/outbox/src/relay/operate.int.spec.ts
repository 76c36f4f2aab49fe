import { encodeCursor, FORGET_HELD_MAX, InvalidRequest, partitionOf, RETRY_KEYS_MAX } from '@runplane/contracts';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { refused } from '../publisher';
import { readFeed } from '../read-feed';
import { appendEvents, aSinkByHand } from '../testing';
import { createRelayControl, explainSink, getSinkStatus, listBlockedKeys } from '.';

// What an operator sees and does, also in the middle of a pass.

const t = useDatabase({ checkInvariants: false });

async function aSink(name: string) {
  const { memory, pass } = await aSinkByHand(t.db, {
    name,
    answer: ({ sequence }) => (sequence === 2 ? refused('too_large', '2 MB') : undefined),
  });
  return { memory, pass, shown: () => memory.arrived.map(({ sequence }) => sequence) };
}

test('an operator sees how a sink stands, and why a key waits, and skips, retries, disables and sends again', async () => {
  const { memory, pass, shown } = await aSink('one');
  const control = createRelayControl(t.db);
  const { cursor: start } = await readFeed(t.db.sql, { tenantId: undefined, after: 'now' });
  await appendEvents(t.db.sql, { sessionId: 'a', sequence: 1, count: 4, batch: true });
  expect(await getSinkStatus(t.db, { sink: 'one' })).toMatchObject({
    backlogCount: 4,
    isExact: true,
    parkedCount: 0,
    relays: 1,
    shardsHeld: 32,
  });
  await pass();

  expect(await getSinkStatus(t.db, { sink: 'one' })).toMatchObject({
    backlogCount: 3,
    heldCount: 3,
    parkedCount: 1,
    maxAttemptCount: 1,
    firstError: '2 MB',
  });
  expect(await explainSink(t.db, { sink: 'one', key: 'acme/a' })).toMatchObject({ cause: 'parked', isMoving: false });
  expect(await explainSink(t.db, { sink: 'one', key: 'acme/other' })).toMatchObject({ cause: 'up-to-date' });
  await expect(explainSink(t.db, { sink: 'one', shard: 32 })).rejects.toMatchObject({ code: 'invalid_request' }); // and not sink_not_found
  const { keys } = await listBlockedKeys(t.db, { sink: 'one', state: 'parked' });
  expect(keys).toMatchObject([{ key: 'acme/a', heldCount: 3, event: { streamId: 'a', sequence: 2 }, reason: 'too_large' }]);

  for (const parts of [
    { shard: 2 ** 40, key: 'acme/a' },
    { shard: 1, key: 'acme/\0' },
  ])
    await expect(listBlockedKeys(t.db, { sink: 'one', cursor: encodeCursor('blocked-keys', parts, 'one') })).rejects.toMatchObject({
      code: 'invalid_cursor',
    });

  const retried = await control.retryBlockedKeys({ sink: 'one' });
  expect(retried).toEqual({ keyCount: 1, more: false, before: expect.any(String) });
  await pass();
  expect(shown()).toEqual([1]);
  // It is parked anew: the rest of the call before has nothing to do with it.
  expect(await control.retryBlockedKeys({ sink: 'one', before: new Date(Date.parse(retried.before) - 1).toISOString() })).toMatchObject({
    keyCount: 0,
  });
  const cursor = keys[0]?.cursor ?? '';
  expect(await control.skipBlockedEvent({ sink: 'one', key: 'acme/a', cursor })).toMatchObject({ heldCount: 2 });
  await expect(control.skipBlockedEvent({ sink: 'one', key: 'acme/a', cursor })).rejects.toMatchObject({ code: 'blocked_key_moved' });
  await pass();
  await pass();
  expect(shown()).toEqual([1, 3, 4]);
  await expect(control.skipBlockedEvent({ sink: 'one', key: 'acme/a', cursor })).rejects.toMatchObject({ code: 'blocked_key_not_found' });

  memory.options = {};
  expect(await control.republish({ sink: 'one', from: start })).toMatchObject({ shards: 1 });
  await expect(control.republish({ sink: 'one', from: start })).rejects.toMatchObject({ code: 'republish_running' });
  await appendEvents(t.db.sql, { sessionId: 'a', sequence: 5 });
  await pass();
  await pass();
  expect(shown()).toEqual([1, 3, 4, 1, 2, 3, 4, 5]);
  expect(await getSinkStatus(t.db, { sink: 'one' })).toMatchObject({ replayingShards: 0, backlogCount: 0 });

  expect(await control.disableSink({ sink: 'one' })).toMatchObject({ changed: true });
  await appendEvents(t.db.sql, { sessionId: 'a', sequence: 6 });
  await pass();
  expect(shown()).toHaveLength(8);
  expect(await explainSink(t.db, { sink: 'one', shard: 0 })).toMatchObject({ cause: 'disabled' });
  await expect(control.republish({ sink: 'one', from: start })).rejects.toMatchObject({ code: 'sink_disabled' });
  await control.enableSink({ sink: 'one', start: 'oldest' });
  expect((await getSinkStatus(t.db, { sink: 'one' })).backlogCount).toBe(6);
  expect(await explainSink(t.db, { sink: 'one', key: 'acme/a' })).toMatchObject({ cause: 'relay-lost' });
  await expect(getSinkStatus(t.db, { sink: 'none' })).rejects.toMatchObject({ code: 'sink_not_found' });
});

test('a skip in the middle of a pass is kept: the pass settles behind it and does not park what is next', async () => {
  const { memory, pass, shown } = await aSink('two');
  const control = createRelayControl(t.db);
  const shard = partitionOf('acme', 'b').shard;
  await appendEvents(t.db.sql, { sessionId: 'b', sequence: 1, count: 3 });
  await pass();
  const [parked] = (await listBlockedKeys(t.db, { sink: 'two' })).keys;
  await control.retryBlockedKeys({ sink: 'two', key: 'acme/b' });
  const beside = await openClient(t.url);
  await beside.query('BEGIN');
  await beside.query(`SELECT FROM runplane.outbox_shards WHERE sink = 'two' AND shard = $1 FOR NO KEY UPDATE`, [shard]);

  // It has read and sent, and waits to settle that the event was refused, and its key parked; the skip comes first.
  const passing = pass();
  await waitUntilBlocked(t.db, 1);
  await beside.query(`DELETE FROM runplane.outbox_held WHERE sink = 'two' AND partition_key = 'acme/b' AND (tx, position) IN
    (SELECT tx, position FROM runplane.outbox_held WHERE sink = 'two' ORDER BY tx, position LIMIT 1)`);
  await beside.query(
    `UPDATE runplane.outbox_blocked_keys SET parked_at = NULL, ready_at = now(), attempts = 0, revision = revision + 1 WHERE sink = 'two'`,
  );
  await beside.query('COMMIT');
  await beside.end();
  await passing;
  await pass();

  expect(parked?.event).toMatchObject({ sequence: 2 });
  expect(shown()).toEqual([1, 3]);
  expect(memory.arrived).toHaveLength(2);
  expect((await listBlockedKeys(t.db, { sink: 'two' })).keys).toEqual([]);
});

test('two tenants with the same session id: a poisoned event of one does not delay the other', async () => {
  const { memory, pass } = await aSink('three');
  memory.options = { answer: ({ tenantId }) => (tenantId === 'acme' ? refused('invalid', 'poison') : undefined) };
  await appendEvents(t.db.sql, { tenantId: 'acme', sessionId: 'same', sequence: 1, count: 2 });
  await appendEvents(t.db.sql, { tenantId: 'globex', sessionId: 'same', sequence: 1, count: 2 });

  await pass();

  expect(memory.arrived.map(({ partitionKey, sequence }) => `${partitionKey} ${sequence}`)).toEqual(['globex/same 1', 'globex/same 2']);
  expect((await listBlockedKeys(t.db, { sink: 'three' })).keys).toMatchObject([{ key: 'acme/same', state: 'parked', attempts: 1 }]);
});

test('what a sink holds is tried again, or forgotten, in parts: interrupted, the next call goes on, and the sink waits for the last', async () => {
  await appendEvents(t.db.sql, { sessionId: 'before', sequence: 1 });
  const { pass } = await aSink('four');
  const control = createRelayControl(t.db);
  await t.db.pool.query(
    `INSERT INTO runplane.outbox_blocked_keys (sink, shard, partition_key, tx, position, attempts, ready_at, parked_at)
       SELECT 'four', i % 32, 'acme/k' || i, 1, i, 1, now(), now() - i * interval '1 s' FROM generate_series(0, $1::int) i`,
    [RETRY_KEYS_MAX],
  );
  await t.db.pool.query(
    `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position) SELECT 'four', 0, 'acme/k0', 1, i FROM generate_series(0, $1::int) i`,
    [FORGET_HELD_MAX],
  );
  const { before, ...first } = await control.retryBlockedKeys({ sink: 'four' });
  expect(first).toEqual({ keyCount: RETRY_KEYS_MAX, more: true });
  expect((await listBlockedKeys(t.db, { sink: 'four', state: 'parked' })).keys).toMatchObject([{ key: 'acme/k0' }]); // parked last
  expect(await control.retryBlockedKeys({ sink: 'four', before })).toEqual({ keyCount: 1, more: false, before });
  await expect(control.retryBlockedKeys({ sink: 'four', before: '0000-01-01T00:00:00Z' })).rejects.toThrow(InvalidRequest);

  expect(await control.enableSink({ sink: 'four', start: 'oldest' })).toEqual({ sink: 'four', enabled: false, changed: true, more: true });
  expect(await pass()).toMatchObject({ sent: 0, lost: [] });
  expect(await getSinkStatus(t.db, { sink: 'four' })).toMatchObject({ enabled: false, heldCount: 1, shardsHeld: 0 });
  expect(await control.enableSink({ sink: 'four' })).toEqual({ sink: 'four', enabled: true, changed: true, more: false });
  const { heldCount, retryingCount, backlogCount } = await getSinkStatus(t.db, { sink: 'four' });
  expect({ heldCount, retryingCount }).toEqual({ heldCount: 0, retryingCount: 0 });
  expect(backlogCount).toBeGreaterThan(0); // from the oldest event on, as the first call has said
  expect(await control.enableSink({ sink: 'four' })).toMatchObject({ changed: false });
});
