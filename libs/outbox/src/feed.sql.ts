import { PAGE_BYTES_MAX } from '@runplane/contracts';
import { column, emptySql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { eventsOf, lastPosition } from './outbox-rows.sql';

const STREAMS = ['run', 'session'] as const;

const FeedRow = z.object({
  storeId: column.text,
  horizon: column.bigint,
  /** The last place below the horizon. */
  headTx: column.bigint.nullable(),
  headPosition: column.bigint.nullable(),
  /** More events of the page were found than their size lets it hold. */
  cut: column.bool,
  /** The last place that the scan has looked at, when it stopped at its limit before the horizon. */
  scanTx: column.bigint.nullable(),
  scanPosition: column.bigint.nullable(),
  tx: column.bigint.nullable(),
  position: column.bigint.nullable(),
  stream: column.state(STREAMS).nullable(),
  streamId: column.text.nullable(),
  sequence: column.int8.nullable(),
  type: column.text.nullable(),
  tenantId: column.text.nullable(),
  projectId: column.text.nullable(),
  sessionId: column.text.nullable(),
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  eventId: column.text.nullable(),
  data: column.jsonObject.nullable(),
  time: column.time.nullable(),
});
export type FeedRow = z.infer<typeof FeedRow>;

export interface FeedPlace {
  readonly tx: bigint;
  readonly position: bigint;
}

/**
 * Reads the feed behind a place and below the horizon: rows and bound from one statement, hence one snapshot (FEED-1). Always returns at
 * least one row; without an event its event columns are null. Reads at most `scanRows` rows of the outbox, whatever the filter leaves, and
 * returns events up to the one whose data passes PAGE_BYTES_MAX.
 *
 * A place may lie within a row that stands for several events: the scan begins at the row that holds it.
 */
export function readFeedRows(
  on: SqlExecutor,
  { after, tenantId, limit, scanRows }: { after: FeedPlace; tenantId: string | undefined; limit: number; scanRows: number },
): Promise<FeedRow[]> {
  const [tx, position] = [sql`${String(after.tx)}::bigint`, sql`${String(after.position)}::bigint`];
  const scanned = (where: Sql): Sql => sql`
    FROM runplane.outbox_events o
    WHERE ${where} (o.tx, o.position) >= (${tx}, (SELECT position FROM start)) AND (o.tx, ${lastPosition}) > (${tx}, ${position}) AND o.tx < (SELECT horizon FROM h)
    ORDER BY o.tx, o.position`;
  return rows(
    on,
    FeedRow,
    sql`
    WITH h AS MATERIALIZED (SELECT runplane.feed_horizon() AS horizon, store_id FROM runplane.store),
    start AS MATERIALIZED (
      SELECT coalesce((SELECT max(o.position) FROM runplane.outbox_events o WHERE o.tx = ${tx} AND o.position <= ${position}), ${position}) AS position
    ),
    head AS MATERIALIZED (
      SELECT o.tx, ${lastPosition} AS position FROM runplane.outbox_events o
      WHERE o.tx < (SELECT horizon FROM h)
      ORDER BY o.tx DESC, o.position DESC LIMIT 1
    ),
    page AS MATERIALIZED (
      SELECT *, sum(octet_length(data::text)) OVER (ORDER BY tx, position ROWS UNBOUNDED PRECEDING) - octet_length(data::text) AS bytes_before
      FROM (
        SELECT * FROM (${eventsOf(sql`(SELECT * FROM (SELECT o.* ${scanned(emptySql)} LIMIT ${scanRows}::int) o
          WHERE ${tenantId ?? null}::text IS NULL OR tenant_id = ${tenantId ?? null}::text)`)}) events
        WHERE (tx, position) > (${tx}, ${position})
        ORDER BY tx, row_position, position LIMIT ${limit}::int
      ) found
    )
    SELECT h.store_id AS "storeId", h.horizon::text AS "horizon", head.tx::text AS "headTx", head.position::text AS "headPosition",
      EXISTS (SELECT FROM page WHERE bytes_before >= ${PAGE_BYTES_MAX}::int) AS "cut",
      s.tx::text AS "scanTx", s.position::text AS "scanPosition",
      p.tx::text AS "tx", p.position::text AS "position", p.stream::text AS "stream", p.stream_id AS "streamId", p.sequence::text AS "sequence",
      p.type AS "type", p.tenant_id AS "tenantId", p.project_id AS "projectId", p.session_id AS "sessionId", p.run_id AS "runId",
      p.command_id AS "commandId", p.event_id AS "eventId", p.data::text AS "data", runplane.wire_time(p.created_at) AS "time"
    FROM h LEFT JOIN head ON true LEFT JOIN LATERAL (
      -- Looked for only where the page is not full: it passes over as many rows as a call may scan.
      SELECT o.tx, ${lastPosition} AS position ${scanned(sql`(SELECT count(*) FROM page) < ${limit}::int AND`)} OFFSET ${scanRows - 1}::int LIMIT 1
    ) s ON true LEFT JOIN page p ON p.bytes_before < ${PAGE_BYTES_MAX}::int
    ORDER BY p.tx, p.position`,
  );
}

/** The last place below the horizon: another one than before means that readers of the feed have something to read. */
export async function readFeedTip(on: SqlExecutor): Promise<string> {
  const [tip] = await rows(
    on,
    z.object({ tip: column.text }),
    sql`
    SELECT o.tx::text || ':' || o.position::text AS "tip" FROM runplane.outbox_events o
    WHERE o.tx < runplane.feed_horizon() ORDER BY o.tx DESC, o.position DESC LIMIT 1`,
  );
  return tip?.tip ?? 'empty';
}
