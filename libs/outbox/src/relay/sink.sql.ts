import { OUTBOX_SHARDS } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from '../feed.sql';

/** False: there is no such sink. */
export async function writeSinkKind(on: SqlExecutor, { name, kind }: { name: string; kind: string }): Promise<boolean> {
  const known = await maybeRow(
    on,
    z.object({ done: column.int }),
    sql`UPDATE runplane.outbox_sinks SET kind = ${kind}::text WHERE name = ${name}::text RETURNING 1 AS "done"`,
  );
  return known !== undefined;
}

/** Makes a sink with all its shards at one place; one that another relay has made meanwhile stays as it is. */
export async function insertSink(on: SqlExecutor, { name, kind, start }: { name: string; kind: string; start: FeedPlace }): Promise<void> {
  await on.query(sql`
    WITH sink AS (
      INSERT INTO runplane.outbox_sinks (name, kind) VALUES (${name}::text, ${kind}::text)
      ON CONFLICT DO NOTHING
    )
    INSERT INTO runplane.outbox_shards (sink, shard, tx, position)
    SELECT ${name}::text, shard, ${String(start.tx)}::bigint, ${String(start.position)}::bigint
    FROM generate_series(0, ${OUTBOX_SHARDS - 1}::int) AS shard
    ON CONFLICT DO NOTHING`);
}
