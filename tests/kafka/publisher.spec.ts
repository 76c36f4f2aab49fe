import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Publisher, PublishOutcome, PublishRecord } from '@runplane/outbox';
import { messageLine, readTopic } from '@runplane/outbox/embedded-kafka';
import { openKafkaPublisher, type KafkaOptions } from '@runplane/outbox/kafka';
import { aRecord, appearances, useKafka } from '../support/kafka';

const k = useKafka();
const open: Publisher[] = [];
const TIMEOUT = { timeoutMs: 20_000 };

function openPublisher(options: Partial<KafkaOptions> = {}): Publisher {
  const publisher = openKafkaPublisher({ brokers: [...k.broker.brokers], ...options });
  open.push(publisher);
  return publisher;
}
afterEach(async () => {
  await Promise.all(open.splice(0).map((publisher) => publisher.close()));
});

/** Records of some keys, in turn, numbered per key. */
function someRecords(topic: string, { keys, each, from = 0 }: { keys: number; each: number; from?: number }): PublishRecord[] {
  return Array.from({ length: keys * each }, (_, index) =>
    aRecord({ topic, partitionKey: `acme/s${index % keys}`, sequence: from + Math.floor(index / keys) }),
  );
}
const kinds = (outcomes: readonly PublishOutcome[]) => outcomes.map(({ kind }) => kind);
const allSent = (records: readonly PublishRecord[]) => records.map(() => 'sent');
const upTo = (count: number) => Array.from({ length: count }, (_, sequence) => sequence);

it('every record arrives once, those of a key in order and in one partition, whatever the calls', async () => {
  await k.broker.createTopic('order');
  const publisher = openPublisher({ batchBytesMax: 20_000 }); // several batches per call and partition

  // Calls at the same time have keys of their own, as shards have.
  const callers = upTo(4).map(async (caller) => {
    for (const from of [0, 50, 100]) {
      const records = someRecords('order', { keys: 10, each: 50, from }).map((record) => ({
        ...record,
        partitionKey: `${record.partitionKey}-${caller}`,
      }));
      expect(kinds(await publisher.publish(records, TIMEOUT))).toEqual(allSent(records));
    }
  });
  await Promise.all(callers);

  const messages = await readTopic(k.broker.brokers, 'order');
  const { first, repeats } = appearances(messages);
  expect(messages).toHaveLength(6_000);
  expect(repeats).toBe(0);
  expect([...first.values()]).toEqual(Array.from({ length: 40 }, () => upTo(150)));
  expect(new Set(messages.map(({ key, partition }) => `${key} ${partition}`)).size).toBe(40);
  expect(new Set(messages.map(({ partition }) => partition))).toEqual(new Set([0, 1, 2]));
});

it('a record that is too large stops its own key, and nothing else', async () => {
  await k.broker.createTopic('small', { partitions: 1, config: { 'max.message.bytes': '2000' } });
  const publisher = openPublisher();
  const records = someRecords('small', { keys: 5, each: 20 });
  const poisoned = records.map((record) =>
    record.partitionKey === 'acme/s2' && record.sequence === 7 ? { ...record, data: JSON.stringify({ text: 'x'.repeat(4_000) }) } : record,
  );

  const outcomes = await publisher.publish(poisoned, TIMEOUT);

  const ofKey = outcomes.filter((_, index) => records[index]?.partitionKey === 'acme/s2');
  expect(kinds(ofKey)).toEqual(upTo(20).map((sequence) => (sequence < 7 ? 'sent' : sequence === 7 ? 'refused' : 'skipped')));
  expect(ofKey[7]).toMatchObject({
    kind: 'refused',
    reason: 'too_large',
    final: false,
    error: expect.stringContaining('MESSAGE_TOO_LARGE'),
  });
  expect(outcomes.filter(({ kind }) => kind === 'sent')).toHaveLength(80 + 7);

  // Sent again from the stopped one on, without it: the operator has skipped it.
  const rest = records.filter(({ partitionKey, sequence }) => partitionKey === 'acme/s2' && sequence > 7);
  expect(kinds(await publisher.publish(rest, TIMEOUT))).toEqual(allSent(rest));
  const { first, repeats } = appearances(await readTopic(k.broker.brokers, 'small'));
  expect(repeats).toBe(0);
  expect(first.get('acme/s2')).toEqual(upTo(20).filter((sequence) => sequence !== 7));
});

it('a topic that does not exist fails for itself, and is found once it is there', async () => {
  await k.broker.createTopic('known');
  const publisher = openPublisher();
  const known = someRecords('known', { keys: 3, each: 2 });
  const unknown = someRecords('unknown', { keys: 2, each: 2 });
  const together = [
    ...unknown.slice(0, 2),
    ...known,
    ...unknown.slice(2),
    aRecord({ topic: 'no such name', partitionKey: 'acme/s9', sequence: 0 }),
  ];

  const outcomes = await publisher.publish(together, TIMEOUT);

  expect(outcomes.slice(0, 2)).toEqual(
    Array.from({ length: 2 }, () => expect.objectContaining({ kind: 'refused', reason: 'unknown_topic', final: false })),
  );
  expect(kinds(outcomes.slice(2, 8))).toEqual(allSent(known));
  expect(kinds(outcomes.slice(8, 10))).toEqual(['skipped', 'skipped']);
  expect(outcomes[10]).toMatchObject({ kind: 'refused', reason: 'invalid_topic', final: true });

  await k.broker.createTopic('unknown');
  expect(kinds(await publisher.publish(unknown, TIMEOUT))).toEqual(allSent(unknown));
});

it('the broker is killed in the middle and comes back: nothing is missing, nothing out of order, and what was in doubt is there once', async () => {
  await k.broker.createTopic('killed');
  const publisher = openPublisher();
  const batches = upTo(40).map((batch) => someRecords('killed', { keys: 12, each: 5, from: batch * 5 }));

  const publishing = (async () => {
    for (const records of batches) {
      expect(kinds(await publisher.publish(records, { timeoutMs: 60_000 }))).toEqual(allSent(records));
      await delay(5); // so that the kill comes in the middle
    }
  })();
  await delay(60);
  await k.broker.kill();
  await k.broker.start();
  await publishing;

  const { first, repeats } = appearances(await readTopic(k.broker.brokers, 'killed'));
  expect([...first.values()]).toEqual(Array.from({ length: 12 }, () => upTo(200)));
  expect(repeats).toBe(0);
});

it('without a broker a call fails within its time, and says so of the sink; later calls get through, in order', async () => {
  await k.broker.createTopic('stopped');
  const publisher = openPublisher();
  const records = someRecords('stopped', { keys: 6, each: 10 });
  const [early, late] = [records.slice(0, 30), records.slice(30)];
  expect(kinds(await publisher.publish(early, TIMEOUT))).toEqual(allSent(early));

  await k.broker.stop();
  const started = performance.now();
  const without = await publisher.publish(late, { timeoutMs: 1_000 });
  const again = await publisher.publish(late, { timeoutMs: 1_000 });
  const tookMs = performance.now() - started;
  await k.broker.start();

  for (const outcomes of [without, again]) {
    expect(kinds(outcomes)).toEqual(late.map((_, index) => (index < 6 ? 'failed' : 'skipped')));
    expect(outcomes[0]).toMatchObject({ reason: expect.stringMatching(/^(timed_out|unavailable)$/) });
  }
  expect(tookMs).toBeLessThan(5_000);
  expect(kinds(await publisher.publish(late, TIMEOUT))).toEqual(allSent(late));
  expect([...appearances(await readTopic(k.broker.brokers, 'stopped')).first.values()]).toEqual(upTo(6).map(() => upTo(10)));
});

it('a broker that hangs is waited for until the deadline, or the abort; what comes late repeats, and overtakes nothing', async () => {
  await k.broker.createTopic('hung');
  const publisher = openPublisher();
  const records = someRecords('hung', { keys: 6, each: 30 });
  const [first, second, third] = [records.slice(0, 60), records.slice(60, 120), records.slice(120)];
  expect(kinds(await publisher.publish(first, TIMEOUT))).toEqual(allSent(first));

  k.broker.pause();
  const late = await publisher.publish(second, { timeoutMs: 500 });
  const stop = new AbortController();
  const aborted = publisher.publish(second, { timeoutMs: 60_000, signal: stop.signal });
  stop.abort();
  const stopped = await aborted;
  k.broker.resume();

  expect(late[0]).toMatchObject({ kind: 'failed', reason: 'timed_out' });
  expect(stopped[0]).toMatchObject({ kind: 'failed', reason: 'stopped' });
  // Fewer records this time: under the old producer the broker would take them for the batch that it has, and drop them.
  const singly = second.filter(({ partitionKey }) => partitionKey !== 'acme/s0');
  expect(kinds(await publisher.publish(singly, TIMEOUT))).toEqual(allSent(singly));
  const rest = [...second.filter(({ partitionKey }) => partitionKey === 'acme/s0'), ...third];
  expect(kinds(await publisher.publish(rest, TIMEOUT))).toEqual(allSent(rest));
  expect([...appearances(await readTopic(k.broker.brokers, 'hung')).first.values()]).toEqual(upTo(6).map(() => upTo(30)));
});

it.each(['none', 'gzip'] as const)('a resend by another process is byte-identical, compression %s', async (compression) => {
  const topic = `resend-${compression}`;
  await k.broker.createTopic(topic, { partitions: 1 });
  const records = upTo(50).map((sequence) =>
    aRecord({ topic, partitionKey: 'acme/s1', sequence, data: `{"z":1e3,"a":"\\u0000 ${'会话 😀 '.repeat(100)}","z":${sequence}}` }),
  );

  await openPublisher({ compression }).publish(records, TIMEOUT);
  await openPublisher({ compression }).publish(records, TIMEOUT);

  const messages = await readTopic(k.broker.brokers, topic);
  const bytes = messages.map(({ key, value, headers, timestamp }) => JSON.stringify([key, value, Object.entries(headers), timestamp]));
  expect(bytes).toHaveLength(100);
  expect(bytes.slice(50)).toEqual(bytes.slice(0, 50));
  expect(messages.slice(0, 50).map(({ value }) => value)).toEqual(records.map(({ data }) => data));
  expect(messages[0]).toMatchObject({
    timestamp: String(Date.parse('2026-11-29T23:00:00.123Z')),
    headers: { ce_id: 'evt_acme/s1_0', 'content-type': 'application/json' },
  });
  expect(messages.map(messageLine)[7]).toMatch(new RegExp(`^${topic}-0@7  acme/s1  #7  runplane.session.context/text  \\{"z":1e3,`));
  const written = await bytesOnDisk(topic);
  const sent = 2 * records.reduce((sum, { data }) => sum + Buffer.byteLength(data), 0);
  expect(written / sent > 1).toBe(compression === 'none');
});

it('a publisher that is closed ends what is under way, and takes nothing more', async () => {
  await k.broker.createTopic('closed');
  const publisher = openPublisher();
  const records = someRecords('closed', { keys: 2, each: 1 });
  expect(kinds(await publisher.publish(records, TIMEOUT))).toEqual(['sent', 'sent']);

  k.broker.pause();
  const underWay = publisher.publish(records, { timeoutMs: 60_000 });
  await publisher.close();
  k.broker.resume();

  for (const outcomes of [await underWay, await publisher.publish(records, TIMEOUT)]) {
    expect(outcomes).toEqual(records.map(() => expect.objectContaining({ kind: 'failed', reason: 'stopped' })));
  }
});

async function bytesOnDisk(topic: string): Promise<number> {
  const folder = path.join(k.broker.dir, 'data', `${topic}-0`);
  const segments = (await readdir(folder)).filter((name) => name.endsWith('.log'));
  const sizes = await Promise.all(segments.map(async (name) => (await stat(path.join(folder, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}
