import { OUTBOX_SHARDS } from '@runplane/contracts';
import { column, oneRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { FEED_START } from '../feed-cursor';
import type { FeedPlace } from '../feed.sql';
import { lastPosition } from '../outbox-rows.sql';

/** Makes a sink with all its shards at one place; of one that is there only the kind is written. */
export async function insertSink(on: SqlExecutor, { name, kind, start }: { name: string; kind: string; start: FeedPlace }): Promise<void> {
  await on.query(sql`
    WITH sink AS (
      INSERT INTO runplane.outbox_sinks (name, kind) VALUES (${name}::text, ${kind}::text)
      ON CONFLICT (name) DO UPDATE SET kind = excluded.kind
    )
    INSERT INTO runplane.outbox_shards (sink, shard, tx, position)
    SELECT ${name}::text, shard, ${String(start.tx)}::bigint, ${String(start.position)}::bigint
    FROM generate_series(0, ${OUTBOX_SHARDS - 1}::int) AS shard
    ON CONFLICT DO NOTHING`);
}

const Head = z.object({ horizon: column.bigint, tx: column.bigint.nullable(), position: column.bigint.nullable() });

/** The horizon, and the last event below it: a place that no crash can undo (docs/adr/0016). */
export async function readHead(on: SqlExecutor): Promise<{ horizon: bigint; place: FeedPlace }> {
  const { horizon, tx, position } = await oneRow(
    on,
    Head,
    sql`
    WITH h AS MATERIALIZED (SELECT runplane.feed_horizon() AS horizon)
    SELECT h.horizon::text AS "horizon", o.tx::text AS "tx", o.position::text AS "position"
    FROM h LEFT JOIN LATERAL (
      SELECT o.tx, ${lastPosition} AS position FROM runplane.outbox_events o WHERE o.tx < h.horizon ORDER BY o.tx DESC, o.position DESC LIMIT 1
    ) o ON true`,
  );
  return { horizon, place: tx === null || position === null ? FEED_START : { tx, position } };
}
