import { PAGE_BYTES_MAX } from '@runplane/contracts';
import { column, emptySql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { eventsOf, lastPosition } from './outbox-rows.sql';

const STREAMS = ['run', 'session'] as const;

const FeedRow = z.object({
  storeId: column.text,
  horizon: column.bigint,
  floorTx: column.bigint,
  floorPosition: column.bigint,
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

/** Which rows a page has; what is undefined asks for nothing. */
export interface RowFilter {
  readonly tenantId: string | undefined;
  readonly stream: string | undefined;
  readonly types: readonly string[] | undefined;
  readonly sessionId: string | undefined;
  readonly runId: string | undefined;
  /** Where all rows that the filter finds have this one, the scan looks at no other. */
  readonly shard: number | undefined;
}

export const NO_FILTER: RowFilter = {
  tenantId: undefined,
  stream: undefined,
  types: undefined,
  sessionId: undefined,
  runId: undefined,
  shard: undefined,
};

const isOf = (name: Sql, value: string | undefined): Sql => sql`(${value ?? null}::text IS NULL OR ${name} = ${value ?? null}::text)`;

/** What a row says of all of its events. */
const rowIsOf = ({ tenantId, stream, sessionId }: RowFilter): Sql =>
  sql`${isOf(sql`o.tenant_id`, tenantId)} AND ${isOf(sql`o.stream::text`, stream)} AND ${isOf(sql`o.session_id`, sessionId)}`;

/** What each event says itself. */
const eventIsOf = ({ types, runId }: RowFilter): Sql => {
  const words = types === undefined ? null : [...types];
  return sql`(${words}::text[] IS NULL OR e.type = ANY (${words}::text[])) AND ${isOf(sql`e.run_id`, runId)}`;
};

/**
 * Reads the feed behind a place, or from its floor on, and below the horizon: rows and bound from one statement, hence one snapshot (FEED-1).
 * Always returns at least one row; without an event its event columns are null. Returns events up to the one whose data passes PAGE_BYTES_MAX.
 *
 * Bounds    whatever the filter leaves, at most `scanRows` rows of the outbox are read, and of those that it finds the first up to the one with
 *           which they have `scanRows` events.
 * A place may lie within a row that stands for several events: the scan begins at the row that holds it.
 */
export function readFeedRows(
  on: SqlExecutor,
  { after, filter, limit, scanRows }: { after: FeedPlace | 'floor'; filter: RowFilter; limit: number; scanRows: number },
): Promise<FeedRow[]> {
  const [tx, position] =
    after === 'floor'
      ? [sql`(SELECT floor_tx FROM h)`, sql`(SELECT floor_position FROM h)`]
      : [sql`${String(after.tx)}::bigint`, sql`${String(after.position)}::bigint`];
  const shard = filter.shard === undefined ? emptySql : sql`o.shard = ${filter.shard}::smallint AND`;
  /** Streams in the order of the index: what needs the first of it alone reads no more. */
  const scan = (where: Sql): Sql => sql`
    SELECT o.*, sum(CASE WHEN o.is_mine THEN o.events ELSE 0 END) OVER (ORDER BY o.tx, o.position ROWS UNBOUNDED PRECEDING) - o.events < ${scanRows}::int AS is_within
    FROM (
      SELECT o.*, ${rowIsOf(filter)} AS is_mine FROM runplane.outbox_events o
      WHERE ${shard} ${where} (o.tx, o.position) >= (${tx}, (SELECT position FROM start)) AND (o.tx, ${lastPosition}) > (${tx}, ${position})
        AND o.tx < (SELECT horizon FROM h)
      ORDER BY o.tx, o.position LIMIT ${scanRows}::int
    ) o`;
  return rows(
    on,
    FeedRow,
    sql`
    WITH h AS MATERIALIZED (
      SELECT runplane.feed_horizon() AS horizon, s.store_id, f.tx AS floor_tx, f.position AS floor_position
      FROM runplane.store s CROSS JOIN runplane.outbox_floor f
    ),
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
        SELECT e.* FROM (${eventsOf(sql`(SELECT * FROM (${scan(emptySql)}) o WHERE o.is_mine AND o.is_within)`)}) e
        WHERE (e.tx, e.position) > (${tx}, ${position}) AND ${eventIsOf(filter)}
        ORDER BY e.tx, e.row_position, e.position LIMIT ${limit}::int
      ) found
    )
    SELECT h.store_id AS "storeId", h.horizon::text AS "horizon", h.floor_tx::text AS "floorTx", h.floor_position::text AS "floorPosition",
      head.tx::text AS "headTx", head.position::text AS "headPosition",
      EXISTS (SELECT FROM page WHERE bytes_before >= ${PAGE_BYTES_MAX}::int) AS "cut",
      s.tx::text AS "scanTx", s.position::text AS "scanPosition",
      p.tx::text AS "tx", p.position::text AS "position", p.stream::text AS "stream", p.stream_id AS "streamId", p.sequence::text AS "sequence",
      p.type AS "type", p.tenant_id AS "tenantId", p.project_id AS "projectId", p.session_id AS "sessionId", p.run_id AS "runId",
      p.command_id AS "commandId", p.event_id AS "eventId", p.data::text AS "data", runplane.wire_time(p.created_at) AS "time"
    FROM h LEFT JOIN head ON true LEFT JOIN LATERAL (
      -- Where the scan has stopped by its bounds. Looked for only where the page is not full: it passes over as many rows as a call may read.
      SELECT c.tx, c.position FROM (
        SELECT o.tx, ${lastPosition} AS position, o.is_within, row_number() OVER (ORDER BY o.tx, o.position) AS n, NOT lead(o.is_within) OVER (ORDER BY o.tx, o.position) AS is_last
        FROM (${scan(sql`(SELECT count(*) FROM page) < ${limit}::int AND`)}) o
      ) c WHERE c.is_within AND (c.is_last OR c.n = ${scanRows}::int) LIMIT 1
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
