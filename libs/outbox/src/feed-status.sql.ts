import { column, maybeRow, oneRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';

const Held = z.object({ events: column.int, scanned: column.int, oldestMs: column.int.nullable() });
export type HeldEvents = z.infer<typeof Held>;

/** Events that are committed, and that the horizon has not passed: looked at from the horizon on, `rowsMax` rows at most. */
export function countHeldEvents(
  on: SqlExecutor,
  { tenantId, rowsMax }: { tenantId: string | undefined; rowsMax: number },
): Promise<HeldEvents> {
  return oneRow(
    on,
    Held,
    sql`SELECT coalesce(sum(h.events) FILTER (WHERE h.mine), 0)::int AS "events", count(*)::int AS "scanned",
          greatest(runplane.ms_until(runplane.app_now(), min(h.created_at) FILTER (WHERE h.mine)), 0) AS "oldestMs"
        FROM (
          SELECT ${tenantId ?? null}::text IS NULL OR o.tenant_id = ${tenantId ?? null}::text AS mine, o.events, o.created_at FROM runplane.outbox_events o
          WHERE o.tx >= (SELECT runplane.feed_horizon()) ORDER BY o.tx, o.position LIMIT ${rowsMax}::int
        ) h`,
  );
}

const Holdup = z.object({
  kind: column.state(['transaction', 'prepared-transaction']),
  forMs: column.int,
  pid: column.int.nullable(),
  application: column.text.nullable(),
  database: column.text.nullable(),
  state: column.text.nullable(),
  waitsFor: column.text.nullable(),
  query: column.text.nullable(),
});
export type HoldupRow = z.infer<typeof Holdup>;

/**
 * The oldest transaction of the whole server that has a number and no end: the horizon waits for it, in whatever database it is. Readers have no
 * number. A role that may not see the activity of others (pg_read_all_stats) finds its own transactions alone.
 */
export function findHoldup(on: SqlExecutor): Promise<HoldupRow | undefined> {
  return maybeRow(
    on,
    Holdup,
    sql`SELECT h.kind AS "kind", greatest(runplane.ms_until(clock_timestamp(), h.since), 0) AS "forMs", h.pid AS "pid", h.application AS "application",
          h.database AS "database", h.state AS "state", h.waits_for AS "waitsFor", h.query AS "query"
        FROM (
          SELECT 'transaction' AS kind, a.xact_start AS since, a.pid, a.application_name AS application, a.datname::text AS database, a.state,
            a.wait_event_type || ':' || a.wait_event AS waits_for, a.query, a.backend_xid AS xid
          FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
          UNION ALL
          SELECT 'prepared-transaction', p.prepared, NULL, p.owner::text, p.database::text, p.gid, NULL, NULL, p.transaction FROM pg_prepared_xacts p
        ) h ORDER BY age(h.xid) DESC LIMIT 1`,
  );
}

const Size = z.object({ rows: column.int8, bytes: column.int8 });

/** As PostgreSQL estimates: no look at the rows. */
export function readOutboxSize(on: SqlExecutor): Promise<z.infer<typeof Size>> {
  return oneRow(
    on,
    Size,
    sql`SELECT greatest(c.reltuples, 0)::bigint::text AS "rows", pg_total_relation_size(c.oid)::text AS "bytes"
        FROM pg_class c WHERE c.oid = 'runplane.outbox_events'::regclass`,
  );
}
