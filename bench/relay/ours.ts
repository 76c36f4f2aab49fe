import { fork } from 'node:child_process';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ensureTenant, openDb } from '@runplane/database';
import { SinkLimits, startRelay, type Publisher, type Relay } from '@runplane/outbox';
import { openKafkaPublisher } from '@runplane/outbox/kafka';
import { registerRunProbes } from '@runplane/runs';
import type { Drain, DrainSetting } from './drain';
import { DATA, someRuns, TENANT, TOPIC } from './events';
import { appendSteadily, machineMs, type Committed, type Steady } from './steady-appends';

// The relay as an API process hosts it: one, woken by hints, with its own settling in the database. The events that it drains are written by one
// statement beforehand, as many appends would have written them.

/** Who appends the events whose delay is measured. */
export const WRITERS = ['the same process', 'another process'] as const;
export type Writer = (typeof WRITERS)[number];

let prepared = 0;

export async function prepareRelay(
  setting: DrainSetting,
  batchEvents: number,
): Promise<Drain & { delays(writer: Writer, steady: Steady): Promise<number[]> }> {
  const { store, kafka, compression } = setting;
  // A sink of its own each time, which begins at the end: what other cases have written is not its backlog.
  const name = `bench-${(prepared += 1)}`;
  const db = await openDb({ url: store.url, applicationName: name, onError: () => undefined });
  registerRunProbes(db);
  await db.hub.start();
  await ensureTenant(db.sql, TENANT);
  const sent = watched(openKafkaPublisher({ brokers: [...kafka.brokers], compression }));
  const relay = await startRelay(db, {
    sinks: [
      {
        name,
        kind: 'kafka',
        topic: TOPIC,
        filter: {},
        start: 'now',
        limits: SinkLimits.parse({ batchEvents }),
        publisher: sent.publisher,
      },
    ],
    onError: (error, where) => {
      console.error(where, error);
    },
  });
  await holdsAllShards(relay);
  const runs = someRuns();
  let next = 1;
  return {
    async run(count) {
      const each = Math.ceil(count / runs.length);
      const all = sent.until(each * runs.length);
      await store.admin.query(FILL, [
        runs.map((run) => run.partitionKey),
        runs.map((run) => run.runId),
        runs.map((run) => run.shard),
        each,
        next,
        DATA,
      ]);
      const started = performance.now();
      db.changed(['feed']);
      next += each;
      await all;
      return performance.now() - started;
    },
    delays: (writer, steady) =>
      delaysOf(writer === 'the same process' ? appendSteadily(db, steady) : committedElsewhere(store.url, steady), sent),
    close: async () => {
      await relay.stop();
      await db.close();
    },
  };
}

const FILL = `
  INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, project_id, run_id, event_id, data)
  SELECT pg_current_xact_id()::text::bigint + (SELECT tx_offset FROM runplane.store), r.shard, r.key, '${TENANT}', 'run', r.run, $5::int + s.n, 'assistant_message',
    'bench', r.run, 'evt_' || gen_random_uuid(), $6::json
  FROM generate_series(0, $4::int - 1) AS s (n), unnest($1::text[], $2::text[], $3::int[]) AS r (key, run, shard)
  ORDER BY s.n, r.run`;

interface Watched {
  readonly publisher: Publisher;
  /** When so many more have been acknowledged. */
  until(count: number): Promise<void>;
  /** Told of each acknowledged event. */
  onSent: ((eventId: string) => void) | undefined;
}

function watched(publisher: Publisher): Watched {
  let count = 0;
  const waiting = new Set<{ at: number; resolve: () => void }>();
  const sent: Watched = {
    publisher: {
      async publish(records, options) {
        const outcomes = await publisher.publish(records, options);
        outcomes.forEach(({ kind }, index) => {
          if (kind !== 'sent') return;
          count += 1;
          const record = records[index];
          if (record !== undefined) sent.onSent?.(record.eventId);
        });
        for (const entry of waiting) if (count >= entry.at) entry.resolve();
        return outcomes;
      },
      close: () => publisher.close(),
    },
    until: (more) =>
      new Promise((resolve) => {
        const entry = { at: count + more, resolve: () => void (waiting.delete(entry), resolve()) };
        waiting.add(entry);
      }),
    onSent: undefined,
  };
  return sent;
}

async function holdsAllShards(relay: Relay): Promise<void> {
  while (relay.stats[0]?.shards !== 32) await delay(20);
}

/** From the answer of an append to the acknowledgement by the broker, in milliseconds, at a steady rate. */
async function delaysOf(committed: Promise<Committed>, sent: Watched): Promise<number[]> {
  const acknowledged = new Map<string, number>();
  sent.onSent = (eventId) => acknowledged.set(eventId, machineMs());
  const events = await committed;
  while (events.some(([id]) => !acknowledged.has(id))) await delay(20);
  sent.onSent = undefined;
  return events.map(([id, at]) => Math.max(0, (acknowledged.get(id) ?? Number.NaN) - at));
}

/** The same appends by a process that has nothing to do with the relay's but the database. */
async function committedElsewhere(url: string, steady: Steady): Promise<Committed> {
  const child = fork(path.join(__dirname, 'writer-process.js'), [url, JSON.stringify(steady)]);
  const committed = await new Promise<Committed>((resolve, reject) => {
    child.once('message', resolve as (message: unknown) => void);
    child.once('exit', (code) => {
      reject(new Error(`the writing process has ended with ${code}`));
    });
  });
  return committed;
}
