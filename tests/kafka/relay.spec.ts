import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openClient, useDatabase } from '@runplane/database/testing';
import { createRelayControl, getSinkStatus, listBlockedKeys } from '@runplane/outbox';
import { readTopic } from '@runplane/outbox/embedded-kafka';
import { appendEvents } from '@runplane/outbox/testing';
import { appearances, useKafka } from '../support/kafka';
import { until } from '../support/until';

// RELAY-1 against a real broker: relays as processes that are killed, stopped and started, a broker that goes and comes back, leases that are lost while
// a send is under way, and poisoned events.

jest.setTimeout(240_000);
const t = useDatabase({ checkInvariants: false }); // events of sessions that are not there
const k = useKafka();
const PROGRAM = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/relay.js');
const KEYS = 8;
const relays: ChildProcess[] = [];
let dir = '';

beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-relay-'));
});
afterAll(async () => {
  for (const relay of relays) relay.kill('SIGKILL');
  await rm(dir, { recursive: true, force: true });
});

async function startRelay(): Promise<ChildProcess> {
  const file = path.join(dir, 'sinks.json');
  const limits = { leaseMs: 3_000, sendTimeoutMs: 1_500, attemptsMax: 2, backOffMs: 50, backOffMaxMs: 200, batchEvents: 20 };
  await writeFile(file, JSON.stringify({ kafka: { kind: 'kafka', start: 'oldest', limits } }));
  const relay = spawn(process.execPath, [PROGRAM], {
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      DATABASE_URL: t.url,
      RUNPLANE_KAFKA_BROKERS: k.broker.brokers.join(','),
      RUNPLANE_KAFKA_TOPIC: 'relayed',
      RUNPLANE_SINKS_FILE: file,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  relays.push(relay);
  return relay;
}

async function end(relay: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const exited = once(relay, 'exit');
  relay.kill(signal);
  await exited;
  relays.splice(relays.indexOf(relay), 1);
  return relay.exitCode;
}

/** Appends until told to stop; every second session has one event that is larger than the topic takes. Returns how many each session has. */
function startWriting(): { stop(): Promise<Map<string, number>> } {
  let stopping = false;
  const written = new Map<string, number>();
  const writing = (async () => {
    const client = await openClient(t.url);
    for (let round = 0; !stopping; round += 1) {
      for (let n = 0; n < KEYS; n += 1) {
        const sessionId = `s${n}`;
        const sequence = (written.get(`acme/${sessionId}`) ?? 0) + 1;
        const poison = n % 2 === 0 && round === 3;
        const count = poison ? 1 : 3;
        await appendEvents(t.db.sql, {
          sessionId,
          sequence,
          count,
          batch: round % 2 === 0,
          data: poison ? { text: 'x'.repeat(40_000) } : { n: sequence },
        });
        written.set(`acme/${sessionId}`, sequence + count - 1);
      }
      await delay(60);
    }
    await client.end();
    return written;
  })();
  return {
    stop: () => {
      stopping = true;
      return writing;
    },
  };
}

it('four relays: killed, stopped, robbed of their shards, the broker away, poisoned events: order per key, and nothing is missing', async () => {
  await k.broker.createTopic('relayed', { config: { 'max.message.bytes': '20000' } });
  const [first, second] = [await startRelay(), await startRelay()];
  await startRelay();
  await startRelay();
  const status = () => getSinkStatus(t.db, { sink: 'kafka' }).catch(() => undefined);
  await until(
    'all four share the shards',
    async () => {
      const { rows } = await t.db.pool.query<{ n: string }>('SELECT count(*) AS n FROM runplane.outbox_shards GROUP BY owner');
      return rows.length === 4 && rows.every(({ n }) => n === '8');
    },
    60_000,
  );
  const writing = startWriting();

  await delay(2_000);
  await end(first, 'SIGKILL');
  await t.db.pool.query(`UPDATE runplane.outbox_shards SET expires_at = now() - interval '1 s' WHERE shard % 2 = 0`);
  await startRelay();
  await k.broker.stop();
  await delay(2_000);
  expect((await status())?.parkedCount).toBeLessThanOrEqual(KEYS / 2); // an unreachable broker parks nothing more
  await k.broker.start();
  await t.db.pool.query(`UPDATE runplane.outbox_shards SET expires_at = now() - interval '1 s' WHERE shard % 2 = 1`);
  expect(await end(second, 'SIGTERM')).toBe(0);
  const { rows: left } = await t.db.pool.query('SELECT owner FROM runplane.outbox_relays');
  await delay(2_000);
  const written = await writing.stop();

  const control = createRelayControl(t.db);
  const skipped = new Map<string, number>();
  await until(
    'all but the poison is sent',
    async () => {
      const { keys } = await listBlockedKeys(t.db, { sink: 'kafka', state: 'parked' });
      for (const { key, cursor, event, lastError } of keys) {
        expect(lastError).toMatch(/large|bytes/i);
        if (event === null) continue;
        skipped.set(key, event.sequence);
        await control.skipBlockedEvent({ sink: 'kafka', key, cursor });
      }
      const now = await status();
      return now !== undefined && now.backlogCount === 0 && now.parkedCount + now.retryingCount === 0;
    },
    90_000,
  );
  for (const relay of [...relays]) expect(await end(relay, 'SIGTERM')).toBe(0);

  const { first: appeared } = appearances(await readTopic(k.broker.brokers, 'relayed'));
  expect(left.length).toBeLessThanOrEqual(4);
  expect([...skipped.keys()].sort()).toEqual(['acme/s0', 'acme/s2', 'acme/s4', 'acme/s6']);
  for (const [key, count] of written) {
    const all = Array.from({ length: count }, (_, n) => n + 1).filter((sequence) => sequence !== skipped.get(key));
    expect({ key, sequences: appeared.get(key) }).toEqual({ key, sequences: all });
  }
});
