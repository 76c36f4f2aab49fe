import { OUTBOX_SHARDS } from '@runplane/contracts';
import { sql, type SqlExecutor } from '@runplane/database';
import type { FeedPlace } from '../feed.sql';

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
