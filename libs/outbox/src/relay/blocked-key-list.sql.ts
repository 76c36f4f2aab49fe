import { type BLOCKED_KEY_STATES, defineCursor, OUTBOX_SHARDS, PartitionKey, type BlockedKey } from '@runplane/contracts';
import { column, emptySql, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { encodeFeedCursor } from '../feed-cursor';
import { eventsOf } from '../outbox-rows.sql';
import { HELD_COUNT_MAX } from './operate.sql';
import { shardOfKey } from './shard-of-key';

export interface ListBlocked {
  readonly sink: string;
  readonly state?: (typeof BLOCKED_KEY_STATES)[number] | undefined;
  readonly key?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

const BlockedRow = z.object({
  key: column.text,
  shard: column.int,
  tx: column.bigint,
  position: column.bigint,
  stream: column.state(['run', 'session']).nullable(),
  streamId: column.text.nullable(),
  sequence: column.int8.nullable(),
  type: column.text.nullable(),
  eventId: column.text.nullable(),
  heldCount: column.int,
  attempts: column.int,
  failures: column.int,
  blockedAt: column.time,
  parkedAt: column.time.nullable(),
  nextTryInMs: column.int8,
  reason: column.text.nullable(),
  lastError: column.text.nullable(),
});
type BlockedRow = z.infer<typeof BlockedRow>;

const pageCursor = defineCursor(
  'blocked-keys',
  z.strictObject({
    shard: z
      .int()
      .min(0)
      .max(OUTBOX_SHARDS - 1),
    key: PartitionKey,
  }),
);

/** As the indexes spell it: a few keys of one state are found among many of the other. */
const OF_STATE = { parked: sql`AND b.parked_at IS NOT NULL`, retrying: sql`AND b.parked_at IS NULL` };

/** One page, with the event at which each key is blocked: the first one held. */
export async function listBlockedRows(
  on: SqlExecutor,
  { sink, state, key, cursor, limit }: ListBlocked & { limit: number },
): Promise<{ found: BlockedRow[]; cursor: string | null }> {
  const after = cursor === undefined ? { shard: -1, key: '' } : pageCursor.decode(cursor, sink);
  const found = await rows(
    on,
    BlockedRow,
    sql`
    SELECT b.partition_key AS "key", b.shard::int AS "shard", h.tx::text AS "tx", h.position::text AS "position",
      e.stream::text AS "stream", e.stream_id AS "streamId", e.sequence::text AS "sequence", e.type AS "type", e.event_id AS "eventId",
      (SELECT count(*) FROM (SELECT FROM runplane.outbox_held x WHERE x.sink = b.sink AND x.shard = b.shard AND x.partition_key = b.partition_key
        LIMIT ${HELD_COUNT_MAX}::int) x)::int AS "heldCount",
      b.attempts AS "attempts", b.failures AS "failures", runplane.wire_time(b.blocked_at) AS "blockedAt", runplane.wire_time(b.parked_at) AS "parkedAt",
      greatest((extract(epoch FROM b.ready_at - runplane.app_now()) * 1000)::bigint, 0)::text AS "nextTryInMs", b.reason AS "reason", b.last_error AS "lastError"
    FROM (
      SELECT * FROM runplane.outbox_blocked_keys b
      WHERE b.sink = ${sink}::text AND (b.shard, b.partition_key) > (${after.shard}::int, ${after.key}::text)
        ${state === undefined ? emptySql : OF_STATE[state]}
        ${key === undefined ? emptySql : sql`AND b.shard = ${shardOfKey(key)}::int AND b.partition_key = ${key}::text`}
      ORDER BY b.shard, b.partition_key LIMIT ${limit + 1}::int
    ) b CROSS JOIN LATERAL (
      SELECT coalesce(h.tx, b.tx) AS tx, coalesce(h.position, b.position) AS position FROM (VALUES (1)) one LEFT JOIN LATERAL (
        SELECT tx, position FROM runplane.outbox_held h WHERE h.sink = b.sink AND h.shard = b.shard AND h.partition_key = b.partition_key
        ORDER BY h.tx, h.position LIMIT 1) h ON true
    ) h LEFT JOIN LATERAL (
      SELECT * FROM (${eventsOf(sql`(SELECT * FROM runplane.outbox_events o WHERE o.tx = h.tx AND o.position <= h.position ORDER BY o.position DESC LIMIT 1)`)}) e
      WHERE e.position = h.position
    ) e ON true
    ORDER BY b.shard, b.partition_key`,
  );
  const page = found.slice(0, limit);
  const last = page.at(-1);
  return {
    found: page,
    cursor: found.length > limit && last !== undefined ? pageCursor.encode({ shard: last.shard, key: last.key }, sink) : null,
  };
}

export function toBlockedKey(
  { tx, position, stream, streamId, sequence, type, eventId, nextTryInMs, ...row }: BlockedRow,
  storeId: string,
): BlockedKey {
  const isThere = stream !== null && streamId !== null && sequence !== null && type !== null && eventId !== null;
  return {
    ...row,
    state: row.parkedAt === null ? 'retrying' : 'parked',
    cursor: encodeFeedCursor(storeId, { tx, position }),
    event: isThere ? { stream, streamId, sequence, type, eventId } : null,
    nextTryInMs: row.parkedAt === null ? nextTryInMs : null,
  };
}
