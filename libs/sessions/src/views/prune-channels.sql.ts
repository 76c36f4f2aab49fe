import { column, oneRow, rawSql, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { NO_SHADOW } from '../rebuild/shadow-views.sql';

/** What channels keep of what is over: the table, the time at which it was over, and which rows are. */
const KINDS = {
  inbounds: { table: 'channel_inbounds', over: 'created_at', is: sql`true` },
  deliveries: { table: 'channel_deliveries', over: 'updated_at', is: sql`state <> 'queued'::runplane.delivery_state` },
  routes: { table: 'channel_routes', over: 'ended_at', is: sql`ended_at IS NOT NULL` },
} as const satisfies Record<string, { table: string; over: string; is: Sql }>;
export type ChannelKind = keyof typeof KINDS;

/**
 * Removes the oldest rows that have been over for so long, at most so many. Rows that an append is writing are left to the next pass; one that comes
 * again after its removal is made anew by its event.
 */
export async function deleteOldRows(
  on: SqlExecutor,
  kind: ChannelKind,
  { olderThanMs, limit }: { olderThanMs: number; limit: number },
): Promise<number> {
  const { table, over, is } = KINDS[kind];
  const [name, time] = [rawSql(`runplane.${table}`), rawSql(over)];
  const { removed } = await oneRow(
    on,
    z.object({ removed: column.int }),
    sql`WITH old AS MATERIALIZED (
        SELECT ctid FROM ${name} WHERE ${is} AND ${NO_SHADOW}
          AND ${time} < (SELECT runplane.app_now()) - ${String(olderThanMs)}::bigint * interval '1 millisecond'
        ORDER BY ${time}, tenant_id, session_id LIMIT ${limit}::int FOR UPDATE SKIP LOCKED
      ), gone AS (DELETE FROM ${name} t USING old WHERE t.ctid = old.ctid RETURNING 1)
      SELECT count(*)::int AS "removed" FROM gone`,
  );
  return removed;
}
