import { setTimeout as delay } from 'node:timers/promises';
import { ensureTenant, openDb, type Db } from '@runplane/database';
import { SinkLimits, startRelay, type Publisher, type Relay } from '@runplane/outbox';
import { openKafkaPublisher } from '@runplane/outbox/kafka';
import { appendRunEvents, registerRunProbes } from '@runplane/runs';
import { claimTurns } from '../append/claimed-turns';
import { payloadOf } from '../append/payload';
import type { Drain, DrainSetting } from './drain';
import { DATA, someRuns, TENANT, TOPIC } from './events';

// The relay as an API process hosts it: one, woken by hints, with its own settling in the database. The events that it drains are written by one
// statement beforehand, as many appends would have written them.

let prepared = 0;

export async function prepareRelay(
  setting: DrainSetting,
  batchEvents: number,
): Promise<Drain & { delays(perSecond: number, seconds: number): Promise<number[]> }> {
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
    delays: (perSecond, seconds) => delaysOf(db, sent, perSecond, seconds),
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
async function delaysOf(db: Db, sent: Watched, perSecond: number, seconds: number): Promise<number[]> {
  const turns = await claimTurns(db, 20);
  const acknowledged = new Map<string, number>();
  const committed = new Map<string, number>();
  sent.onSent = (eventId) => acknowledged.set(eventId, performance.now());
  const appends: Promise<void>[] = [];
  const started = performance.now();
  for (let n = 0; n < perSecond * seconds; n += 1) {
    await delay(Math.max(0, started + (n * 1_000) / perSecond - performance.now()));
    const { runId, commandId, epoch } = turns[n % turns.length] as (typeof turns)[number];
    const append = async (): Promise<void> => {
      const { eventIds } = await appendRunEvents(db, {
        tenantId: TENANT,
        runId,
        epoch,
        producerSequence: Math.floor(n / turns.length) + 1,
        events: [{ type: 'assistant_message', payload: payloadOf(commandId) }],
      });
      for (const id of eventIds) committed.set(id, performance.now());
    };
    appends.push(append());
  }
  await Promise.all(appends);
  while ([...committed.keys()].some((id) => !acknowledged.has(id))) await delay(20);
  sent.onSent = undefined;
  return [...committed].map(([id, at]) => Math.max(0, (acknowledged.get(id) ?? Number.NaN) - at));
}
