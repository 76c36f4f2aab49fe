import {
  commitFeedConsumer,
  createRelayControl,
  explainSink,
  getFeedStatus,
  getRelayStatus,
  listBlockedKeys,
  listFeedConsumers,
  listParkedEvents,
  listWebhookDeliveries,
  pruneOutboxOnce,
  pruneWebhookDeliveriesOnce,
  registerFeedConsumer,
  registerSinks,
  SinkSettings,
  type Sink,
} from '@runplane/outbox';
import { createMemorySink, keepShards, relayPass } from '@runplane/outbox/testing';
import { inTransaction, type Db } from '@runplane/database';
import type { Hot } from '../../support/plans';
import { ROWS, store, tenantId } from './store';

// A sink with a backlog, and keys that it does not take, half of them parked; one that has nothing; consumers; tries of a webhook.

const settings = SinkSettings.parse({ topic: 'events', limits: { batchEvents: 20 } });
const sink: Sink = { ...settings, name: 'big', kind: 'memory', publisher: createMemorySink().publisher() };
const owner = 'plans';
const days = 1;

const pass = async (db: Db): Promise<unknown> => {
  const { shards } = await keepShards(store.db.lane, { sink: sink.name, owner, leaseMs: 60_000 });
  return relayPass(db, sink, { owner, shards });
};
const key = { sink: 'big', key: `${tenantId}/h7` };
const COUNTED = { counts: 10_000, pagesMax: 30_000 }; // each row with a page of the table and of the index

export const relayStatements: Record<string, Hot> = {
  'what a pass of the relay reads': {
    call: pass,
    statement: /scan AS MATERIALIZED/,
    index: 'outbox_events_shard_tx_position_idx',
    pagesMax: 12_000, // 640 events, each with a look for its key; as many held ones
  },
  'what a pass of the relay writes': { call: pass, statement: /cursors AS/, pagesMax: 20_000, needsRows: true },
  'a sign of life of a relay': {
    call: (db) => keepShards(db.lane, { sink: 'big', owner, leaseMs: 60_000 }),
    statement: /silent AS/,
    pagesMax: 1_000,
  },
  'status of all sinks': {
    call: (db) => getRelayStatus(db),
    statement: /firstError/,
    index: 'outbox_events_shard_tx_position_idx',
    ...COUNTED,
  },
  'blocked keys': {
    call: (db) => listBlockedKeys(db, { sink: 'big' }),
    statement: /nextTryInMs/,
    index: 'outbox_blocked_keys_pkey',
    pagesMax: 2_000,
  },
  'parked keys': {
    call: (db) => listBlockedKeys(db, { sink: 'big', state: 'parked' }),
    statement: /nextTryInMs/,
    index: 'outbox_blocked_keys_parked_list',
    pagesMax: 2_000,
  },
  'retried keys': {
    call: (db) => listBlockedKeys(db, { sink: 'big', state: 'retrying' }),
    statement: /nextTryInMs/,
    index: 'outbox_blocked_keys_retrying_list',
    pagesMax: 2_000,
  },
  'one blocked key': { call: (db) => listBlockedKeys(db, key), statement: /nextTryInMs/, index: 'outbox_blocked_keys_pkey' },
  'why of a shard': {
    call: (db) => explainSink(db, { sink: 'big', shard: 1 }),
    statement: /isAboveHorizon/,
    index: 'outbox_events_shard_tx_position_idx',
  },
  'try parked keys again': {
    call: (db) => createRelayControl(db).retryBlockedKeys({ sink: 'big' }),
    statement: /parked_at <= /,
    index: 'outbox_blocked_keys_parked',
    pagesMax: 40_000,
  },
  'find a blocked key to skip': {
    call: (db) =>
      createRelayControl(db)
        .skipBlockedEvent({ ...key, cursor: store.places.get('oldest') ?? '' })
        .catch(() => undefined),
    statement: /LEFT JOIN LATERAL/,
    index: 'outbox_held_pkey',
    needsRows: true,
  },
  'find what is parked for too long': {
    call: (db) => listParkedEvents(db.sql, { tenantId: undefined, days, after: null }),
    statement: /isParked/,
    index: 'outbox_held_held_at_tx_position_sink_idx',
    pagesMax: 20_000,
  },
  'mark the head of the outbox': {
    call: (db) => pruneOutboxOnce(db),
    statement: /INSERT INTO runplane.outbox_marks/,
    index: 'outbox_events_pkey',
  },
  'where the floor may be': {
    call: (db) => pruneOutboxOnce(db),
    statement: /heldBy/,
    index: 'outbox_events_shard_tx_position_idx',
    pagesMax: 1_000,
  },
  'remove a batch below the floor': { call: (db) => pruneOutboxOnce(db), statement: /gone AS/, index: 'outbox_events_pkey' },
  'say what could be removed': {
    call: (db) => pruneOutboxOnce(db, { dryRun: true, limit: 100 }),
    statement: /AS tx, \$2::bigint|pruned_tx, pruned_position FROM/,
    index: 'outbox_events_pkey',
  },
  'consumers of the feed': {
    call: (db) => listFeedConsumers(db, { tenantId: undefined, all: true }),
    statement: /lagIsExact/,
    index: 'outbox_events_pkey',
    ...COUNTED,
  },
  'what the horizon holds back': { call: (db) => getFeedStatus(db, { tenantId: undefined }), statement: /scanned/, ...COUNTED },
  'where the feed stands': {
    call: (db) => getFeedStatus(db, { tenantId: undefined }),
    statement: /headPosition/,
    index: 'outbox_events_pkey',
  },
  'move a consumer': {
    call: (db) =>
      commitFeedConsumer(db, { tenantId, name: 'c', from: store.places.get('oldest') ?? '', to: store.places.get('oldest') ?? '' }),
    statement: /moved_at = CASE/,
    needsRows: true,
  },
  'tries of a webhook': {
    call: (db) => listWebhookDeliveries(db, { sink: 'big' }),
    statement: /webhook_deliveries/,
    index: 'webhook_deliveries_sink_tried_at_id_idx',
  },
  'tries of a webhook for a key': {
    call: (db) => listWebhookDeliveries(db, key),
    statement: /webhook_deliveries/,
    index: 'webhook_deliveries_sink_partition_key_tried_at_id_idx',
  },
  'remove old tries of a webhook': {
    call: (db) => pruneWebhookDeliveriesOnce(db, { limit: 100 }),
    statement: /webhook_deliveries/,
    index: 'webhook_deliveries_tried_at_idx',
    pagesMax: 1_000,
  },
};

export async function beginRelay(): Promise<void> {
  await registerSinks(
    store.db,
    ['big', 'idle'].map((name) => ({ name, kind: 'memory', start: 'oldest' })),
  );
}

/** As `fill`; before its ANALYZE. A third of the outbox lies behind the cursors. */
export async function fillRelay(): Promise<void> {
  const run = (text: string, ...values: unknown[]) => store.filler.query(text, values);
  await run(`UPDATE runplane.outbox_shards SET tx = 100 + $1::int / 10, position = 0 WHERE sink = 'big'`, ROWS);
  await run(`UPDATE runplane.outbox_shards SET tx = 1000000000 WHERE sink = 'idle'`);
  await run(
    `INSERT INTO runplane.outbox_blocked_keys (sink, shard, partition_key, tx, position, attempts, ready_at, parked_at, last_error)
       SELECT 'big', i % 32, $2 || '/h' || i, 100 + i / 10, i, i % 10, now() + (i - $1::int / 2) * interval '1 s', CASE WHEN i % 2 = 0 THEN now() - i * interval '1 s' END, 'no'
       FROM generate_series(1, $1::int) i`,
    ROWS,
    tenantId,
  );
  await run(
    `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position, held_at)
       SELECT 'big', i % 32, $2 || '/h' || i, 100 + i / 10, i + n * 100000000, now() - i * interval '1 minute' FROM generate_series(1, $1::int) i, generate_series(0, 1) n`,
    ROWS,
    tenantId,
  );
  await run(
    `INSERT INTO runplane.webhook_deliveries (id, sink, tenant_id, partition_key, stream, stream_id, sequence, type, event_id, outcome, duration_ms, tried_at)
       SELECT 'd' || i, 'big', $2, $2 || '/h' || i % 100, 'run', 'r', i, 't', 'e' || i, CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'sent' END, 1, now() - i * interval '1 minute'
       FROM generate_series(1, $1::int) i`,
    ROWS,
    tenantId,
  );
}

export async function findRelayPlaces(): Promise<void> {
  const { oldestCursor } = await getFeedStatus(store.db, { tenantId: undefined });
  store.places.set('oldest', oldestCursor);
  await inTransaction(store.db, (tx) => registerFeedConsumer(tx, { tenantId, name: 'c' }));
}
