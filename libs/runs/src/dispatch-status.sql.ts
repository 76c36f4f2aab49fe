import { column, oneRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';

const StatusRow = z.object({
  counted: column.int,
  due: column.int,
  dispatching: column.int,
  retrying: column.int,
  oldestAt: column.time.nullable(),
  oldestForMs: column.int.nullable(),
  maxAttempts: column.int,
  firstError: column.text.nullable(),
});

/** Counts a tenant's open intents, or everybody's, up to a number; the partial index of due work has no others. */
export function countOpenIntents(
  on: SqlExecutor,
  { tenantId, limit }: { tenantId: string | undefined; limit: number },
): Promise<z.infer<typeof StatusRow>> {
  const ofTenant = tenantId === undefined ? sql`true` : sql`tenant_id = ${tenantId}::text`;
  return oneRow(
    on,
    StatusRow,
    sql`WITH clock AS MATERIALIZED (SELECT runplane.app_now() AS now), open AS MATERIALIZED (
          SELECT state, attempts, ready_at, last_error, created_at FROM runplane.dispatch_intents
          WHERE state IN ('pending', 'dispatching', 'retry') AND ${ofTenant} ORDER BY ready_at, id LIMIT ${limit}::int
        )
        SELECT count(*)::int AS "counted", count(*) FILTER (WHERE ready_at <= now)::int AS "due",
          count(*) FILTER (WHERE state = 'dispatching')::int AS "dispatching", count(*) FILTER (WHERE state = 'retry')::int AS "retrying",
          runplane.wire_time(min(created_at)) AS "oldestAt", runplane.ms_until(min(now), min(created_at)) AS "oldestForMs",
          coalesce(max(attempts), 0)::int AS "maxAttempts",
          (SELECT last_error FROM open WHERE last_error IS NOT NULL ORDER BY created_at LIMIT 1) AS "firstError"
        FROM open, clock`,
  );
}
