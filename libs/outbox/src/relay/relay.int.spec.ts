import { partitionOf } from '@runplane/contracts';
import { useDatabase, waitForHorizon } from '@runplane/database/testing';
import { SKIPPED } from '../publish-outcomes';
import { failed, refused, type PublishRecord } from '../publisher';
import { appendEvents, createMemorySink, type MemorySink } from '../testing';
import { relayPass } from './pass';
import { registerSinks } from './register-sinks';
import { keepShards } from './shard.sql';
import { SinkSettings, type Sink } from './sink';

// One pass at a time, by hand. Relays that run: tests/properties/relay.spec.ts.

const t = useDatabase({ checkInvariants: false });

let made = 0;
/** A sink that begins now, all of whose shards one owner holds. */
async function aSink(
  settings: object = {},
): Promise<{ sink: Sink; memory: MemorySink; owner: string; pass: () => ReturnType<typeof relayPass> }> {
  made += 1;
  const memory = createMemorySink();
  const sink: Sink = {
    ...SinkSettings.parse({ topic: 'events', limits: { backOffMs: 1, backOffMaxMs: 1, attemptsMax: 3 }, ...settings }),
    name: `sink-${made}`,
    kind: 'memory',
    publisher: memory.publisher(),
  };
  await waitForHorizon(t.db);
  await registerSinks(t.db, [sink]);
  const owner = `owner-${made}`;
  const { shards } = await keepShards(t.db.lane, { sink: sink.name, owner, leaseMs: 60_000 });
  expect(shards).toHaveLength(32);
  return {
    sink,
    memory,
    owner,
    pass: async () => {
      await waitForHorizon(t.db);
      if (sink.limits.backOffMs === 1) await passBackOffs(sink.name); // a millisecond is over, however quick the machine
      return relayPass(t.db, sink, { owner, shards });
    },
  };
}

const passBackOffs = (sink: string) =>
  t.db.pool.query(`UPDATE runplane.outbox_blocked_keys SET ready_at = now() WHERE sink = $1 AND ready_at > now()`, [sink]);
const shown = (arrived: readonly PublishRecord[]) => arrived.map(({ streamId, sequence }) => `${streamId} ${sequence}`);
/** Session ids of one shard. */
function neighbours(count: number): string[] {
  const found: string[] = [];
  for (let n = 0; found.length < count; n += 1) if (partitionOf('acme', `n${n}`).shard === 3) found.push(`n${n}`);
  return found;
}
const rowsOf = async (table: string, sink: string) =>
  (await t.db.pool.query(`SELECT * FROM runplane.${table} WHERE sink = $1 ORDER BY 1, 2`, [sink])).rows as Record<string, unknown>[];

test('what was committed before the sink is not sent, what comes after is, in order, once', async () => {
  await appendEvents(t.db.sql, { sessionId: 'old', sequence: 1 });
  const { memory, pass } = await aSink();
  await appendEvents(t.db.sql, { sessionId: 'a', sequence: 1, count: 3, data: { n: 1 } });
  await appendEvents(t.db.sql, { sessionId: 'b', sequence: 1 });
  await appendEvents(t.db.sql, { sessionId: 'a', sequence: 4 });

  expect(await pass()).toMatchObject({ sent: 5, failed: 0, more: false });
  expect(await pass()).toMatchObject({ sent: 0, more: false });

  expect(shown(memory.arrived).filter((event) => event.startsWith('a'))).toEqual(['a 1', 'a 2', 'a 3', 'a 4']);
  expect(memory.arrived).toHaveLength(5);
  expect(memory.arrived).toContainEqual(
    expect.objectContaining({ topic: 'events', tenantId: 'acme', partitionKey: 'acme/a', data: '{"n":1}' }),
  );
});

test('a refused record blocks its key alone, is tried again, is parked, and what is behind it waits', async () => {
  const [sick = '', well = ''] = neighbours(2);
  const { sink, memory, pass } = await aSink();
  memory.options = { answer: ({ streamId, sequence }) => (streamId === sick && sequence === 2 ? refused('too_large', '2 MB') : undefined) };
  await appendEvents(t.db.sql, { sessionId: sick, sequence: 1, count: 3 });
  await appendEvents(t.db.sql, { sessionId: well, sequence: 1, count: 2 });

  await pass();
  expect(shown(memory.arrived)).toEqual([`${sick} 1`, `${well} 1`, `${well} 2`]);
  for (let tries = 0; tries < 3; tries += 1) await pass();
  await appendEvents(t.db.sql, { sessionId: sick, sequence: 4 });
  await appendEvents(t.db.sql, { sessionId: well, sequence: 3 });
  await pass();

  expect(shown(memory.arrived)).toEqual([`${sick} 1`, `${well} 1`, `${well} 2`, `${well} 3`]);
  expect(await rowsOf('outbox_held', sink.name)).toHaveLength(3);
  const [blocked] = await rowsOf('outbox_blocked_keys', sink.name);
  expect(blocked).toMatchObject({
    partition_key: `acme/${sick}`,
    attempts: 3,
    reason: 'too_large',
    last_error: '2 MB',
    parked_at: expect.any(Date) as Date,
  });
});

test('a key whose record is taken in the end catches up in order, and is free again', async () => {
  const { sink, memory, pass } = await aSink({ limits: { backOffMs: 1, backOffMaxMs: 1, batchEvents: 2, attemptsMax: 1000 } });
  let sick = true;
  memory.options = {
    answer: ({ streamId, sequence }) => (sick && streamId === 'c' && sequence === 1 ? refused('unknown_topic', 'none') : undefined),
  };
  await appendEvents(t.db.sql, { sessionId: 'c', sequence: 1, count: 120 });

  for (let more = true; more;) ({ more } = await pass());
  expect(memory.arrived).toEqual([]);
  sick = false;
  for (let passes = 0; passes < 5; passes += 1) await pass();

  expect(shown(memory.arrived)).toEqual(Array.from({ length: 120 }, (_, n) => `c ${n + 1}`));
  expect(await rowsOf('outbox_held', sink.name)).toEqual([]);
  expect(await rowsOf('outbox_blocked_keys', sink.name)).toEqual([]);
});

test('a failure of the sink blocks no key: the cursor stays before the first unsent record, and the shard backs off', async () => {
  const [one = '', two = ''] = neighbours(2);
  const { sink, memory, pass } = await aSink({ limits: { backOffMs: 60_000 } });
  memory.options = {
    answer: ({ streamId, sequence }) => (streamId === one && sequence === 2 ? failed('unavailable', 'no leader') : undefined),
  };
  await appendEvents(t.db.sql, { sessionId: one, sequence: 1, count: 3 });
  await appendEvents(t.db.sql, { sessionId: two, sequence: 1 });

  expect(await pass()).toMatchObject({ failed: 1, more: false });
  expect(await pass()).toMatchObject({ sent: 0, failed: 0 }); // it backs off
  memory.options = {};
  await t.db.pool.query(`UPDATE runplane.outbox_shards SET ready_at = now() WHERE sink = $1`, [sink.name]);
  await pass();

  expect(shown(memory.arrived)).toEqual([`${one} 1`, `${two} 1`, `${one} 2`, `${one} 3`, `${two} 1`]); // a repeat, no gap
  expect(await rowsOf('outbox_blocked_keys', sink.name)).toEqual([]);
  expect((await rowsOf('outbox_shards', sink.name))[3]).toMatchObject({ failures: 0, last_error: null });
});

test('a sink that takes a part of each call has not failed: it is asked again at once, and nothing is missing', async () => {
  const { sink, memory, pass } = await aSink();
  const ids = neighbours(7);
  for (const sessionId of ids) await appendEvents(t.db.sql, { sessionId, sequence: 1 });
  let room = 0;
  memory.options = { fault: () => ((room = 3), undefined), answer: () => ((room -= 1) < 0 ? SKIPPED : undefined) };

  const passes = [];
  for (let n = 0; n < 3; n += 1) passes.push(await pass());

  expect(passes).toMatchObject([true, true, false].map((more) => ({ more, failed: 0, backOffMs: undefined })));
  expect(shown(memory.arrived)).toEqual(ids.map((id) => `${id} 1`));
  expect((await rowsOf('outbox_shards', sink.name))[3]).toMatchObject({ failures: 0 });
});

test('a shard that a pass did not come to keeps its count of failures, and does not back off', async () => {
  const [sessionId = ''] = neighbours(1);
  const { sink, memory, pass } = await aSink();
  await appendEvents(t.db.sql, { sessionId, sequence: 1 });
  await t.db.pool.query(
    `UPDATE runplane.outbox_shards SET failures = 3, failed_at = now(), last_error = 'gone' WHERE sink = $1 AND shard = 3`,
    [sink.name],
  );
  memory.options = { answer: () => SKIPPED };

  expect(await pass()).toMatchObject({ sent: 0, failed: 0, more: false, backOffMs: undefined });
  expect((await rowsOf('outbox_shards', sink.name))[3]).toMatchObject({
    failures: 3,
    last_error: 'gone',
    failed_at: expect.any(Date) as Date,
  });
  memory.options = {};
  await pass();

  expect(shown(memory.arrived)).toEqual([`${sessionId} 1`]);
  expect((await rowsOf('outbox_shards', sink.name))[3]).toMatchObject({ failures: 0, last_error: null, failed_at: null });
});

test('a record at which the sink fails again and again, while others go through, holds up its key alone', async () => {
  const [sick = '', well = ''] = neighbours(2);
  const { sink, memory, pass } = await aSink();
  memory.options = { fault: (records) => (records.some(({ streamId }) => streamId === sick) ? { arriving: 0 } : undefined) };
  await appendEvents(t.db.sql, { sessionId: sick, sequence: 1 });
  await appendEvents(t.db.sql, { sessionId: well, sequence: 1, count: 2 });
  const cutOff = () => t.db.pool.query(`UPDATE runplane.outbox_shards SET ready_at = now() WHERE sink = $1`, [sink.name]);

  for (let passes = 0; passes < 8; passes += 1) {
    await t.db.pool.query(`UPDATE runplane.outbox_shards SET sent_at = now() + interval '1 s' WHERE sink = $1 AND shard = 4`, [sink.name]);
    await cutOff();
    await pass();
  }

  expect(shown(memory.arrived)).toEqual([`${well} 1`, `${well} 2`]);
  expect(
    (await rowsOf('outbox_blocked_keys', sink.name)).map(({ partition_key, attempts, parked_at }) => ({
      partition_key,
      attempts,
      parked_at,
    })),
  ).toEqual(expect.arrayContaining([{ partition_key: `acme/${sick}`, attempts: 0, parked_at: null }]));
});

test('a pass whose shards were taken over meanwhile settles nothing', async () => {
  const { sink, memory, pass } = await aSink();
  await appendEvents(t.db.sql, { sessionId: 'd', sequence: 1 });
  const { publish } = sink.publisher;
  sink.publisher.publish = async (...call) => {
    await t.db.pool.query(`UPDATE runplane.outbox_shards SET owner = 'other', epoch = epoch + 1 WHERE sink = $1`, [sink.name]);
    return publish.apply(sink.publisher, call);
  };

  expect(await pass()).toMatchObject({ sent: 0, lost: [{ shard: partitionOf('acme', 'd').shard }] });
  expect(memory.arrived).toHaveLength(1);

  const [first] = await rowsOf('outbox_shards', sink.name);
  expect(new Set((await rowsOf('outbox_shards', sink.name)).map(({ tx }) => tx))).toEqual(new Set([first?.['tx']]));
});

test('an append of many events is sent event by event, also when a pass ends within it, and what was erased is passed over', async () => {
  const { sink, memory, pass } = await aSink({ limits: { backOffMs: 1, backOffMaxMs: 1, batchEvents: 3, attemptsMax: 1000 } });
  let sick = true;
  memory.options = {
    answer: ({ streamId, sequence }) => (sick && streamId === 'f' && sequence === 3 ? failed('unavailable', 'gone') : undefined),
  };
  await appendEvents(t.db.sql, { sessionId: 'f', sequence: 1, count: 7, batch: true });
  for (let erased = 0; erased < 5; erased += 1) await appendEvents(t.db.sql, { sessionId: 'gone', sequence: 1 + erased, batch: true });
  await t.db.pool.query(`DELETE FROM runplane.session_events WHERE session_id = 'gone'`);
  await appendEvents(t.db.sql, { sessionId: 'gone', sequence: 9 });
  const passOn = async () => {
    await t.db.pool.query(`UPDATE runplane.outbox_shards SET ready_at = now() WHERE sink = $1`, [sink.name]);
    for (let more = true; more;) ({ more } = await pass());
  };

  await passOn();
  expect(shown(memory.arrived).filter((event) => event.startsWith('f'))).toEqual(['f 1', 'f 2']); // the cursor is within the row
  await passOn();
  sick = false;
  await passOn();

  const sequences = [1, 2, 3, 4, 5, 6, 7].map((n) => `f ${n}`);
  expect(shown(memory.arrived).filter((event) => event.startsWith('f'))).toEqual(sequences);
  expect(shown(memory.arrived).filter((event) => event.startsWith('gone'))).toEqual(['gone 9']);
});

test('a pass ends with the event that passes its bytes, in each shard, whatever of the filter lies behind; the next begins right there', async () => {
  const [one = '', two = ''] = neighbours(2);
  const data = { text: 'x'.repeat(100) };
  const { memory, pass } = await aSink({ filter: { types: ['wanted'] }, limits: { batchEvents: 8, batchBytes: 250 } });
  await appendEvents(t.db.sql, { sessionId: one, sequence: 1, count: 4, type: 'wanted', data });
  await appendEvents(t.db.sql, { sessionId: one, sequence: 5, count: 2, type: 'other', data });
  await appendEvents(t.db.sql, { sessionId: two, sequence: 1, count: 4, type: 'wanted', data, batch: true });
  await appendEvents(t.db.sql, { sessionId: 'elsewhere', sequence: 1, count: 30, type: 'other', data });

  const passes = [await pass(), await pass(), await pass(), await pass(), await pass()];

  expect(passes.map(({ sent, more }) => [sent, more])).toEqual([
    [3, true],
    [3, true],
    [2, true], // elsewhere has more to look at
    [0, false],
    [0, false],
  ]);
  expect(shown(memory.arrived)).toEqual([one, two].flatMap((session) => [1, 2, 3, 4].map((n) => `${session} ${n}`)));
});

test('of a batch the events behind a refused one are held by their places, and an erased one of them is passed over', async () => {
  const { sink, memory, pass } = await aSink({ limits: { backOffMs: 1, backOffMaxMs: 1, attemptsMax: 1000 } });
  let sick = true;
  memory.options = { answer: ({ sequence }) => (sick && sequence === 2 ? refused('unknown_topic', 'none') : undefined) };
  await appendEvents(t.db.sql, { sessionId: 'g', sequence: 1, count: 4, batch: true });

  await pass();
  expect(shown(memory.arrived)).toEqual(['g 1']);
  expect(await rowsOf('outbox_held', sink.name)).toHaveLength(3);
  await t.db.pool.query(`DELETE FROM runplane.session_events WHERE session_id = 'g' AND sequence = 3`);
  sick = false;
  for (let passes = 0; passes < 3; passes += 1) await pass();

  expect(shown(memory.arrived)).toEqual(['g 1', 'g 2', 'g 4']);
  expect([...(await rowsOf('outbox_held', sink.name)), ...(await rowsOf('outbox_blocked_keys', sink.name))]).toEqual([]);
});

test('a filter passes over other tenants, streams and types, and the cursor goes with it', async () => {
  const { sink, memory, pass } = await aSink({ filter: { tenants: ['acme'], types: ['approval/*'] }, topic: 'x.{tenant}.{stream}' });
  await appendEvents(t.db.sql, { sessionId: 'e', sequence: 1, type: 'approval/resolved' });
  await appendEvents(t.db.sql, { sessionId: 'e', sequence: 2, type: 'turn/start' });
  await appendEvents(t.db.sql, { sessionId: 'e', sequence: 1, type: 'approval/resolved', tenantId: 'globex' });

  await pass();

  expect(memory.arrived.map(({ topic, partitionKey, type }) => ({ topic, partitionKey, type }))).toEqual([
    { topic: 'x.acme.session', partitionKey: 'acme/e', type: 'approval/resolved' },
  ]);
  memory.options = { fault: () => ({ arriving: 0 }) };
  expect(await pass()).toMatchObject({ sent: 0, failed: 0 }); // nothing is left to be sent
  expect((await rowsOf('outbox_shards', sink.name)).filter(({ failures }) => failures !== 0)).toEqual([]);
});
