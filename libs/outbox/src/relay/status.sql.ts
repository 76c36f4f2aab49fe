import { column, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { lastPosition } from '../outbox-rows.sql';

/** More than so many events, or keys, are not counted. */
const COUNT_MAX = 10_000;

const StatusRow = z.object({
  sink: column.text,
  kind: column.text,
  enabled: column.bool,
  relays: column.int,
  shardsHeld: column.int,
  shardsFailing: column.int,
  replayingShards: column.int,
  freshCount: column.int,
  heldCount: column.int,
  retryingCount: column.int,
  parkedCount: column.int,
  oldestParkedAt: column.time.nullable(),
  oldestPendingAt: column.time.nullable(),
  lagMs: column.int8,
  newestSentAt: column.time.nullable(),
  maxAttemptCount: column.int,
  firstError: column.text.nullable(),
});
export type StatusRow = z.infer<typeof StatusRow>;

export const isCountedWhole = ({ freshCount, heldCount, retryingCount, parkedCount }: StatusRow): boolean =>
  Math.max(freshCount, heldCount, retryingCount, parkedCount) <= COUNT_MAX;

/** The first rows behind the cursor of each shard of sink `k`; a cursor may lie within a row. */
const behindCursors = (rowsMax: number): Sql => sql`
        FROM runplane.outbox_shards s CROSS JOIN LATERAL (
          SELECT coalesce((SELECT max(o.position) FROM runplane.outbox_events o WHERE o.tx = s.tx AND o.position <= s.position), s.position) AS position
        ) start CROSS JOIN LATERAL (
          SELECT o.tx, o.position, o.events, o.created_at FROM runplane.outbox_events o
          WHERE o.shard = s.shard AND (o.tx, o.position) >= (s.tx, start.position) AND (o.tx, ${lastPosition}) > (s.tx, s.position)
          ORDER BY o.tx, o.position LIMIT ${rowsMax}::int
        ) o
        WHERE s.sink = k.name`;

/**
 * One row per sink. Reads at most COUNT_MAX rows for each count, and the first row behind each cursor, by index: the cost does not grow with the
 * outbox or the backlog.
 */
export function listStatusRows(on: SqlExecutor, { sink }: { sink?: string | undefined }): Promise<StatusRow[]> {
  // In the order of an index: a sink of which there is nothing must not read all that others have.
  const counted = (from: Sql): Sql => sql`(SELECT count(*) FROM (SELECT FROM ${from} LIMIT ${COUNT_MAX + 1}::int) counted)::int`;
  return rows(
    on,
    StatusRow,
    sql`
    WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now)
    SELECT k.name AS "sink", k.kind AS "kind", k.enabled AS "enabled",
      (SELECT count(*) FROM runplane.outbox_relays r WHERE r.sink = k.name AND r.expires_at > c.now)::int AS "relays",
      s.held AS "shardsHeld", s.failing AS "shardsFailing", s.replaying AS "replayingShards",
      -- Row by row, shard after shard, until enough are counted.
      (SELECT coalesce(sum(n.events), 0) FROM (
        SELECT CASE WHEN o.tx = s.tx AND o.position <= s.position THEN ${lastPosition} - s.position ELSE o.events END AS events ${behindCursors(COUNT_MAX + 1)}
        LIMIT ${COUNT_MAX + 1}::int) n)::int AS "freshCount",
      ${counted(sql`runplane.outbox_held h WHERE h.sink = k.name ORDER BY h.tx, h.position`)} AS "heldCount",
      ${counted(sql`runplane.outbox_blocked_keys b WHERE b.sink = k.name AND b.parked_at IS NULL ORDER BY b.shard, b.partition_key`)} AS "retryingCount",
      ${counted(sql`runplane.outbox_blocked_keys b WHERE b.sink = k.name AND b.parked_at IS NOT NULL ORDER BY b.shard, b.partition_key`)} AS "parkedCount",
      runplane.wire_time((SELECT b.parked_at FROM runplane.outbox_blocked_keys b WHERE b.sink = k.name AND b.parked_at IS NOT NULL
        ORDER BY b.parked_at LIMIT 1)) AS "oldestParkedAt",
      runplane.wire_time(p.oldest) AS "oldestPendingAt", greatest(coalesce((extract(epoch FROM c.now - p.oldest) * 1000)::bigint, 0), 0)::text AS "lagMs",
      runplane.wire_time(s.sent_at) AS "newestSentAt",
      coalesce((SELECT b.attempts FROM runplane.outbox_blocked_keys b WHERE b.sink = k.name ORDER BY b.attempts DESC LIMIT 1), 0) AS "maxAttemptCount",
      coalesce(
        (SELECT b.last_error FROM runplane.outbox_blocked_keys b WHERE b.sink = k.name AND b.last_error IS NOT NULL ORDER BY b.tx, b.position LIMIT 1),
        s.last_error) AS "firstError"
    FROM runplane.outbox_sinks k CROSS JOIN c CROSS JOIN LATERAL (
      SELECT (count(*) FILTER (WHERE s.expires_at > c.now))::int AS held, (count(*) FILTER (WHERE s.failures > 0))::int AS failing,
        (count(*) FILTER (WHERE s.replay_tx IS NOT NULL))::int AS replaying, max(s.sent_at) AS sent_at, min(s.last_error) AS last_error
      FROM runplane.outbox_shards s WHERE s.sink = k.name
    ) s CROSS JOIN LATERAL (
      SELECT least(
        (SELECT min(o.created_at) ${behindCursors(1)}),
        (SELECT o.created_at FROM (SELECT tx, position FROM runplane.outbox_held h WHERE h.sink = k.name ORDER BY h.tx, h.position LIMIT 1) h
          CROSS JOIN LATERAL (SELECT created_at FROM runplane.outbox_events o WHERE o.tx = h.tx AND o.position <= h.position
            ORDER BY o.position DESC LIMIT 1) o)) AS oldest
    ) p
    WHERE ${sink ?? null}::text IS NULL OR k.name = ${sink ?? null}::text
    ORDER BY k.name COLLATE "C"`,
  );
}
