import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { lastPosition } from '../outbox-rows.sql';

const ShardFacts = z.object({
  enabled: column.bool,
  owner: column.text.nullable(),
  leaseRemainingMs: column.int8.nullable(),
  relays: column.int,
  failures: column.int,
  lastError: column.text.nullable(),
  nextTryInMs: column.int8,
  /** Of the first row behind the cursor, and whether an open writer holds it back. */
  oldestPendingForMs: column.int8.nullable(),
  isAboveHorizon: column.bool,
  sentAt: column.time.nullable(),
});
export type ShardFacts = z.infer<typeof ShardFacts>;

export function findShardFacts(on: SqlExecutor, { sink, shard }: { sink: string; shard: number }): Promise<ShardFacts | undefined> {
  return maybeRow(
    on,
    ShardFacts,
    sql`
    WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now, runplane.feed_horizon() AS horizon)
    SELECT k.enabled AS "enabled", s.owner AS "owner", (extract(epoch FROM s.expires_at - c.now) * 1000)::bigint::text AS "leaseRemainingMs",
      (SELECT count(*) FROM runplane.outbox_relays r WHERE r.sink = s.sink AND r.expires_at > c.now)::int AS "relays",
      s.failures AS "failures", s.last_error AS "lastError",
      greatest((extract(epoch FROM s.ready_at - c.now) * 1000)::bigint, 0)::text AS "nextTryInMs",
      (extract(epoch FROM c.now - o.created_at) * 1000)::bigint::text AS "oldestPendingForMs", coalesce(o.tx >= c.horizon, false) AS "isAboveHorizon",
      runplane.wire_time(s.sent_at) AS "sentAt"
    FROM c CROSS JOIN runplane.outbox_shards s JOIN runplane.outbox_sinks k ON k.name = s.sink CROSS JOIN LATERAL (
      SELECT coalesce((SELECT max(o.position) FROM runplane.outbox_events o WHERE o.tx = s.tx AND o.position <= s.position), s.position) AS position
    ) start LEFT JOIN LATERAL (
      SELECT o.tx, o.created_at FROM runplane.outbox_events o
      WHERE o.shard = s.shard AND (o.tx, o.position) >= (s.tx, start.position) AND (o.tx, ${lastPosition}) > (s.tx, s.position)
      ORDER BY o.tx, o.position LIMIT 1
    ) o ON true
    WHERE s.sink = ${sink}::text AND s.shard = ${shard}::int`,
  );
}
