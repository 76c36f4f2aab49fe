import { column, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from '../feed.sql';
import { eventsOf, lastPosition } from '../outbox-rows.sql';
import type { PublishRecord } from '../publisher';
import type { DueKey, Page, PageItem, ShardPass } from './pass-decisions';
import { topicOf, typePatterns, type Sink } from './sink';

// What a pass reads, in one statement, hence one snapshot: events, horizon, cursors and blocked keys of several shards (FEED-1, RELAY-1).

/** How far a page goes: the last place looked at; `cut`: its bytes have ended it before, with its last event. */
const PageEnd = z.object({ tx: column.bigint, position: column.bigint, more: z.boolean(), cut: z.boolean() });
type PageEnd = z.infer<typeof PageEnd>;
const ShardFacts = z.object({
  epoch: z.int(),
  failures: z.int(),
  othersSent: z.boolean(),
  replaying: z.boolean(),
  remainingMs: z.int(),
  waiting: z.boolean(),
  fresh: PageEnd.nullable(),
  replay: PageEnd.nullable(),
});
const KeyFacts = z.object({
  tx: column.bigint,
  position: column.bigint,
  attempts: z.int(),
  failures: z.int(),
  blockedMs: z.number(),
  revision: z.int(),
  complete: z.boolean(),
});

const Row = z.object({
  part: column.state(['shard', 'key', 'due', 'replay', 'fresh']),
  shard: column.int,
  facts: column.text.nullable(),
  key: column.text.nullable(),
  tx: column.bigint.nullable(),
  position: column.bigint.nullable(),
  stream: column.state(['run', 'session']).nullable(),
  streamId: column.text.nullable(),
  sequence: column.int8.nullable(),
  type: column.text.nullable(),
  tenantId: column.text.nullable(),
  projectId: column.text.nullable(),
  sessionId: column.text.nullable(),
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  eventId: column.text.nullable(),
  data: column.text.nullable(),
  time: column.time.nullable(),
});
type Row = z.infer<typeof Row>;

export interface HeldShard {
  readonly shard: number;
  readonly epoch: number;
}

export interface ReadShard extends ShardPass {
  /** Of the lease, when the statement ran. */
  readonly remainingMs: number;
  /** Committed events lie at or above the horizon: a writer that is still open holds them back. */
  readonly waiting: boolean;
}

/** Due keys of one shard in one pass, and the held events of each. */
const DUE_KEYS_MAX = 20;
const DUE_EVENTS_MAX = 50;

/**
 * Reads what there is to send of the named shards. A shard that is no longer held under its epoch, whose lease is over or which backs off, is
 * left out. No lock: only the owner writes what is read here, but for the operator's calls, which `revision` shows.
 */
export async function readShards(
  on: SqlExecutor,
  sink: Pick<Sink, 'name' | 'topic' | 'filter' | 'limits'>,
  { owner, shards }: { owner: string; shards: readonly HeldShard[] },
): Promise<ReadShard[]> {
  const { name, filter, limits } = sink;
  const [tenants, streams, types] = [filter.tenants ?? null, filter.streams ?? null, typePatterns(filter.types)];
  const matches = sql`((${tenants}::text[] IS NULL OR e.tenant_id = ANY (${tenants}::text[]))
        AND (${streams}::text[] IS NULL OR e.stream::text = ANY (${streams}::text[])) AND (${types}::text[] IS NULL OR e.type LIKE ANY (${types}::text[])))`;
  const found = await rows(
    on,
    Row,
    sql`
    WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now, runplane.feed_horizon() AS horizon),
    mine AS MATERIALIZED (
      SELECT s.*, c.now, c.horizon
      FROM c CROSS JOIN unnest(${shards.map(({ shard }) => shard)}::int[], ${shards.map(({ epoch }) => epoch)}::int[]) AS held (shard, epoch)
      JOIN runplane.outbox_shards s ON s.sink = ${name}::text AND s.shard = held.shard AND s.epoch = held.epoch
      WHERE s.owner = ${owner}::text AND s.expires_at > c.now AND s.ready_at <= c.now
        AND EXISTS (SELECT FROM runplane.outbox_sinks k WHERE k.name = s.sink AND k.enabled)
    ),
    keys AS MATERIALIZED (
      SELECT k.*, m.now FROM mine m CROSS JOIN LATERAL (
        SELECT * FROM runplane.outbox_blocked_keys b
        WHERE b.sink = ${name}::text AND b.shard = m.shard AND b.parked_at IS NULL AND b.ready_at <= m.now
        ORDER BY b.ready_at, b.partition_key LIMIT ${DUE_KEYS_MAX}::int
      ) k
    ),
    due AS MATERIALIZED (
      SELECT k.shard AS of_shard, k.partition_key AS of_key, h.tx AS held_tx, h.position AS held_position, e.*,
        sum(coalesce(octet_length(e.data::text), 0)) OVER (PARTITION BY k.shard ORDER BY k.ready_at, k.partition_key, h.tx, h.position
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
      FROM keys k CROSS JOIN LATERAL (
        SELECT h.tx, h.position FROM runplane.outbox_held h
        WHERE h.sink = ${name}::text AND h.shard = k.shard AND h.partition_key = k.partition_key
        ORDER BY h.tx, h.position LIMIT ${DUE_EVENTS_MAX}::int
      ) h LEFT JOIN LATERAL (
        SELECT * FROM (${eventsOf(sql`(SELECT * FROM runplane.outbox_events o WHERE o.tx = h.tx AND o.position <= h.position ORDER BY o.position DESC LIMIT 1)`)}) e
        WHERE e.position = h.position
      ) e ON true
    ),
    -- The rows of each page, until they have the events of a pass. A cursor may lie within a row: the first one is that which holds it. Page by page,
    -- in the order of the index: nothing is sorted.
    scan AS MATERIALIZED (
      SELECT m.shard AS of_shard, r.part, r.after_tx, r.after_position, r.to_tx, r.to_position, r.has_blocked, o.*
      FROM mine m CROSS JOIN LATERAL (
        SELECT p.*,
          coalesce((SELECT max(o.position) FROM runplane.outbox_events o WHERE o.tx = p.after_tx AND o.position <= p.after_position), p.after_position) AS start,
          (SELECT b.partition_key FROM runplane.outbox_blocked_keys b WHERE b.sink = ${name}::text AND b.shard = m.shard ORDER BY b.partition_key LIMIT 1)
            IS NOT NULL AS has_blocked
        FROM (VALUES
          ('fresh', m.tx, m.position, NULL::bigint, NULL::bigint),
          ('replay', m.replay_tx, m.replay_position, m.replay_to_tx, m.replay_to_position)
        ) AS p (part, after_tx, after_position, to_tx, to_position) WHERE p.after_tx IS NOT NULL
      ) r CROSS JOIN LATERAL (
        SELECT o.*, lead(o.position) OVER (ORDER BY o.tx, o.position) IS NULL AS is_end
        FROM (
          SELECT o.*, sum(o.events) OVER (ORDER BY o.tx, o.position ROWS UNBOUNDED PRECEDING) AS events_to FROM (
            SELECT * FROM runplane.outbox_events o
            WHERE o.shard = m.shard AND (o.tx, o.position) >= (r.after_tx, r.start) AND (o.tx, ${lastPosition}) > (r.after_tx, r.after_position)
              AND o.tx < m.horizon AND (r.to_tx IS NULL OR (o.tx, o.position) <= (r.to_tx, r.to_position))
            ORDER BY o.tx, o.position LIMIT ${limits.batchEvents}::int
          ) o
        ) o WHERE o.events_to - o.events < ${limits.batchEvents}::int
      ) o
    ),
    pages AS MATERIALIZED (
      SELECT s.of_shard, s.part, e.*, f.matches, f.blocked, coalesce(sum(f.bytes) OVER (PARTITION BY s.of_shard, s.part ORDER BY e.tx, e.position
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
      FROM scan s CROSS JOIN LATERAL (${eventsOf(sql`(SELECT s.*)`)}) e CROSS JOIN LATERAL (
        SELECT g.*, CASE WHEN g.matches AND NOT g.blocked THEN octet_length(e.data::text) ELSE 0 END AS bytes
        FROM (SELECT ${matches} AS matches, s.has_blocked AND EXISTS (SELECT FROM runplane.outbox_blocked_keys b
          WHERE b.sink = ${name}::text AND b.shard = s.of_shard AND b.partition_key = e.partition_key) AS blocked OFFSET 0) g
      ) f
      WHERE (e.tx, e.position) > (s.after_tx, s.after_position) AND (s.to_tx IS NULL OR (e.tx, e.position) <= (s.to_tx, s.to_position))
    ),
    cuts AS MATERIALIZED (SELECT DISTINCT of_shard, part FROM pages WHERE bytes_before >= ${limits.batchBytes}::int),
    ends AS MATERIALIZED (
      SELECT o.of_shard, o.part, json_build_object('tx', o.tx::text, 'position', (${lastPosition})::text, 'more', o.events_to >= ${limits.batchEvents}::int,
        'cut', EXISTS (SELECT FROM cuts c WHERE c.of_shard = o.of_shard AND c.part = o.part)) AS place
      FROM scan o WHERE o.is_end
    )
    SELECT 'shard' AS "part", m.shard::int AS "shard", json_build_object('epoch', m.epoch, 'failures', m.failures,
        'othersSent', m.failed_at IS NOT NULL AND EXISTS (SELECT FROM runplane.outbox_shards x WHERE x.sink = ${name}::text AND x.shard <> m.shard AND x.sent_at > m.failed_at),
        'replaying', m.replay_tx IS NOT NULL, 'remainingMs', (extract(epoch FROM m.expires_at - m.now) * 1000)::int,
        'waiting', EXISTS (SELECT FROM runplane.outbox_events o WHERE o.shard = m.shard AND o.tx >= m.horizon),
        'fresh', (SELECT place FROM ends WHERE of_shard = m.shard AND part = 'fresh'),
        'replay', (SELECT place FROM ends WHERE of_shard = m.shard AND part = 'replay'))::text AS "facts",
      NULL::text AS "key", NULL::text AS "tx", NULL::text AS "position", NULL::text AS "stream", NULL::text AS "streamId", NULL::text AS "sequence",
      NULL::text AS "type", NULL::text AS "tenantId", NULL::text AS "projectId", NULL::text AS "sessionId", NULL::text AS "runId",
      NULL::text AS "commandId", NULL::text AS "eventId", NULL::text AS "data", NULL::text AS "time"
    FROM mine m
    UNION ALL
    SELECT 'key', k.shard::int, json_build_object('tx', k.tx::text, 'position', k.position::text, 'attempts', k.attempts, 'failures', k.failures,
        'blockedMs', (extract(epoch FROM k.now - k.blocked_at) * 1000)::bigint, 'revision', k.revision,
        'complete', (SELECT count(*) < ${DUE_EVENTS_MAX}::int AND coalesce(bool_and(coalesce(d.bytes_before, 0) < ${limits.batchBytes}::int), true)
          FROM due d WHERE d.of_shard = k.shard AND d.of_key = k.partition_key))::text,
      k.partition_key, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM keys k
    UNION ALL
    SELECT 'due', d.of_shard::int, NULL, d.of_key, d.held_tx::text, d.held_position::text, ${recordColumns(sql`d`)}, d.data::text,
      runplane.wire_time(d.created_at)
    FROM due d WHERE coalesce(d.bytes_before, 0) < ${limits.batchBytes}::int
    UNION ALL
    SELECT p.part, p.of_shard::int, NULL, p.partition_key, p.tx::text, p.position::text, ${recordColumns(sql`p`)}, CASE WHEN NOT p.blocked THEN p.data::text END,
      runplane.wire_time(p.created_at)
    FROM pages p WHERE p.matches AND p.bytes_before < ${limits.batchBytes}::int`,
  );
  return shardsOf(found, sink.topic);
}

const recordColumns = (
  of: Sql,
): Sql => sql`${of}.stream::text, ${of}.stream_id, ${of}.sequence::text, ${of}.type, ${of}.tenant_id, ${of}.project_id, ${of}.session_id,
      ${of}.run_id, ${of}.command_id, ${of}.event_id`;

const placeOf = ({ tx, position }: Row): FeedPlace => {
  if (tx === null || position === null) throw new Error('an event of a pass has no place');
  return { tx, position };
};

export const comparePlaces = (a: FeedPlace, b: FeedPlace): number => {
  if (a.tx !== b.tx) return a.tx < b.tx ? -1 : 1;
  return a.position === b.position ? 0 : a.position < b.position ? -1 : 1;
};

function recordOf(row: Row, topic: string): PublishRecord | undefined {
  const { key, stream, streamId, sequence, type, tenantId, projectId, sessionId, runId, commandId, eventId, data, time } = row;
  if (key === null || stream === null || streamId === null || sequence === null || type === null || tenantId === null) return undefined;
  if (eventId === null || data === null || time === null) return undefined;
  const ids = { streamId, sequence, eventId, type, tenantId, projectId, sessionId, runId, commandId };
  return { place: placeOf(row), topic: topicOf(topic, { tenantId, stream }), partitionKey: key, stream, ...ids, data, time };
}

function shardsOf(found: readonly Row[], topic: string): ReadShard[] {
  return [...grouped(found, ({ shard }) => shard)].map(([shard, ofShard]) => shardOf(shard, ofShard, topic));
}

function grouped<Key>(found: readonly Row[], keyOf: (row: Row) => Key): Map<Key, Row[]> {
  const groups = new Map<Key, Row[]>();
  for (const row of found) {
    const group = groups.get(keyOf(row));
    if (group === undefined) groups.set(keyOf(row), [row]);
    else group.push(row);
  }
  return groups;
}

function shardOf(shard: number, ofShard: readonly Row[], topic: string): ReadShard {
  const { fresh, replay, ...facts } = ShardFacts.parse(JSON.parse(ofShard.find(({ part }) => part === 'shard')?.facts ?? '{}'));
  const pageOf = (wanted: 'fresh' | 'replay', end: PageEnd | null): Page =>
    toPage(
      ofShard.filter(({ part }) => part === wanted),
      end,
      topic,
    );
  return { shard, ...facts, keys: keysOf(ofShard, topic), replay: pageOf('replay', replay), fresh: pageOf('fresh', fresh) };
}

function toPage(events: readonly Row[], end: PageEnd | null, topic: string): Page {
  const items = events
    .map((row): PageItem => ({ key: row.key ?? '', place: placeOf(row), record: recordOf(row, topic) }))
    .sort((a, b) => comparePlaces(a.place, b.place));
  if (end === null) return { items, end: undefined, more: false };
  return { items, end: end.cut ? items.at(-1)?.place : { tx: end.tx, position: end.position }, more: end.more || end.cut };
}

function keysOf(ofShard: readonly Row[], topic: string): DueKey[] {
  const events = grouped(
    ofShard.filter(({ part }) => part === 'due'),
    ({ key }) => key,
  );
  return ofShard.flatMap((row) => {
    if (row.part !== 'key' || row.key === null) return [];
    const { tx, position, ...facts } = KeyFacts.parse(JSON.parse(row.facts ?? '{}'));
    const ofKey = (events.get(row.key) ?? []).map((event) => ({ place: placeOf(event), record: recordOf(event, topic) }));
    return [{ key: row.key, place: { tx, position }, ...facts, events: ofKey.sort((a, b) => comparePlaces(a.place, b.place)) }];
  });
}
