import type { QueueLane } from '@runplane/contracts';
import { column, emptySql, joinSql, maybeRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { TaskRow } from './task.sql';

// Lanes and their limits. A row of queue_lanes is one lane; the one named '' is the queue as a whole, which exists where somebody has set its limit.
// `running` counts the tasks that run and say so in `places`: bit 1 their lane, bit 2 their queue. The row is locked before it is looked at, so that
// whoever claims at the same time is counted, and before the tasks (rank `lane`). A lane without a limit is neither locked nor counted.

export const LANE_PLACE = 1;
export const QUEUE_PLACE = 2;

/** The name under which the queue as a whole stands; no lane can have it. */
export const WHOLE_QUEUE = '';

export interface QueueKey {
  readonly tenantId: string;
  readonly queue: string;
}

const laneIds = ({ tenantId, queue, lane }: QueueKey & { lane: string }): string[] => [
  `${tenantId}/${queue}/${WHOLE_QUEUE}`,
  `${tenantId}/${queue}/${lane}`,
];

const LimitRow = z.object({ lane: column.text, maxRunning: column.int.nullable(), running: column.int });
export type LaneLimit = z.infer<typeof LimitRow>;

/** Locks the rows of a lane and its queue that count, or will: those with a limit, and those that the task is counted in. */
export function lockLanes(tx: Tx, { tenantId, queue, lane, places }: QueueKey & Pick<TaskRow, 'lane' | 'places'>): Promise<LaneLimit[]> {
  takingLock(tx, 'lane', ...laneIds({ tenantId, queue, lane }));
  return rows(
    tx,
    LimitRow,
    sql`SELECT l.lane AS "lane", l.max_running AS "maxRunning", l.running AS "running" FROM runplane.queue_lanes l
        WHERE l.tenant_id = ${tenantId}::text AND l.queue = ${queue}::text AND l.lane IN (${WHOLE_QUEUE}::text, ${lane}::text)
          AND (l.max_running IS NOT NULL OR (CASE l.lane WHEN '' THEN ${QUEUE_PLACE}::int ELSE ${LANE_PLACE}::int END & ${places}::int) > 0)
        ORDER BY l.lane COLLATE "C" FOR NO KEY UPDATE`,
  );
}

/** The places that a task takes when it begins to run under these rows. */
export const placesIn = (limits: readonly LaneLimit[]): number =>
  limits
    .filter(({ maxRunning }) => maxRunning !== null)
    .reduce((places, { lane }) => places | (lane === WHOLE_QUEUE ? QUEUE_PLACE : LANE_PLACE), 0);

/** The limit that leaves no room, if one does. */
export const fullLane = (limits: readonly LaneLimit[]): LaneLimit | undefined =>
  limits.find(({ maxRunning, running }) => maxRunning !== null && running >= maxRunning);

/** Counts a task in, or with -1 out, in the locked rows that `places` names. */
export async function writePlaces(
  tx: Tx,
  { tenantId, queue, lane, places }: QueueKey & Pick<TaskRow, 'lane' | 'places'>,
  by: 1 | -1,
): Promise<void> {
  if (places === 0) return;
  const lanes = [...((places & QUEUE_PLACE) > 0 ? [WHOLE_QUEUE] : []), ...((places & LANE_PLACE) > 0 ? [lane] : [])];
  takingLock(tx, 'lane', ...lanes.map((name) => `${tenantId}/${queue}/${name}`));
  await tx.query(
    sql`UPDATE runplane.queue_lanes SET running = running + ${by}::int, updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND queue = ${queue}::text AND lane = ANY (${lanes}::text[])`,
  );
}

/** Within a statement: takes `n` tasks out of the counts, of rows (tenant_id, queue, lane, places) of `source`; the lanes are locked. */
export const leavePlaces = (source: Sql): Sql => sql`
  UPDATE runplane.queue_lanes l SET running = l.running - x.n, updated_at = runplane.app_now()
  FROM (
    SELECT s.tenant_id, s.queue, p.lane, count(*)::int AS n
    FROM ${source} s CROSS JOIN LATERAL (VALUES (s.lane, ${LANE_PLACE}::int), ('', ${QUEUE_PLACE}::int)) AS p (lane, bit)
    WHERE (s.places & p.bit) > 0 GROUP BY 1, 2, 3
  ) x
  WHERE l.tenant_id = x.tenant_id AND l.queue = x.queue AND l.lane = x.lane`;

/** Within a statement: locks the lanes in which rows (tenant_id, queue, lane, places) of `source` are counted, in the order of locks; or those that are free. */
export const lockPlaces = (source: Sql, { wait }: { wait: boolean }): Sql => sql`
  SELECT l.tenant_id, l.queue, l.lane
  FROM (
    SELECT DISTINCT s.tenant_id, s.queue, p.lane
    FROM ${source} s CROSS JOIN LATERAL (VALUES (s.lane, ${LANE_PLACE}::int), ('', ${QUEUE_PLACE}::int)) AS p (lane, bit)
    WHERE (s.places & p.bit) > 0
  ) x
  JOIN runplane.queue_lanes l ON l.tenant_id = x.tenant_id AND l.queue = x.queue AND l.lane = x.lane
  ORDER BY l.tenant_id COLLATE "C", l.queue COLLATE "C", l.lane COLLATE "C"
  FOR NO KEY UPDATE OF l ${wait ? emptySql : sql`SKIP LOCKED`}`;

/** Within a statement: the rows of `source` of which each lane that counts them is among `lanes`, which are locked. */
export const withLanes = (source: Sql, lanes: Sql): Sql => sql`
  SELECT s.* FROM ${source} s
  WHERE NOT EXISTS (
    SELECT FROM (VALUES (s.lane, ${LANE_PLACE}::int), ('', ${QUEUE_PLACE}::int)) AS p (lane, bit)
    WHERE (s.places & p.bit) > 0
      AND NOT EXISTS (SELECT FROM ${lanes} l WHERE l.tenant_id = s.tenant_id AND l.queue = s.queue AND l.lane = p.lane)
  )`;

/** The lane's row, made if it is new, locked. */
export async function lockOrMakeLane(tx: Tx, { tenantId, queue, lane }: QueueKey & { lane: string }): Promise<LaneLimit> {
  takingLock(tx, 'lane', `${tenantId}/${queue}/${lane}`);
  const row = await maybeRow(
    tx,
    LimitRow,
    sql`INSERT INTO runplane.queue_lanes AS l (tenant_id, queue, lane) VALUES (${tenantId}::text, ${queue}::text, ${lane}::text)
        ON CONFLICT (tenant_id, queue, lane) DO UPDATE SET updated_at = l.updated_at
        RETURNING l.lane AS "lane", l.max_running AS "maxRunning", l.running AS "running"`,
  );
  if (row === undefined) throw new Error(`lane ${lane} of queue ${queue} is neither new nor there`);
  return row;
}

/**
 * Sets a lane's limit and counts the tasks that run there without having been counted: they began when there was no limit. The lane is locked.
 * Claims of the moment before, which have not committed, are not seen; they end uncounted.
 */
export async function writeLaneLimit(
  tx: Tx,
  { tenantId, queue, lane }: QueueKey & { lane: string },
  maxRunning: number | null,
): Promise<void> {
  const bit = lane === WHOLE_QUEUE ? QUEUE_PLACE : LANE_PLACE;
  const inLane = lane === WHOLE_QUEUE ? sql`true` : sql`t.lane = ${lane}::text`;
  await tx.query(
    sql`WITH uncounted AS MATERIALIZED (
          SELECT t.tenant_id, t.id FROM runplane.queue_tasks t
          WHERE t.tenant_id COLLATE "C" = ${tenantId}::text AND t.queue = ${queue}::text AND t.state = 'running' AND ${inLane}
            AND (t.places & ${bit}::int) = 0 AND ${maxRunning}::int IS NOT NULL
          ORDER BY t.id COLLATE "C" FOR NO KEY UPDATE
        ), counted AS (
          UPDATE runplane.queue_tasks t SET places = t.places | ${bit}::int FROM uncounted u
          WHERE t.tenant_id = u.tenant_id AND t.id = u.id AND t.state = 'running' RETURNING t.id
        )
        UPDATE runplane.queue_lanes l SET max_running = ${maxRunning}::int, running = l.running + (SELECT count(*) FROM counted)::int,
          updated_at = runplane.app_now()
        WHERE l.tenant_id = ${tenantId}::text AND l.queue = ${queue}::text AND l.lane = ${lane}::text`,
  );
}

const LaneRow = z.object({
  queue: column.text,
  lane: column.text,
  maxRunning: column.int.nullable(),
  running: column.int,
  createdAt: column.time,
  updatedAt: column.time,
});

export const toLane = ({ lane, running, ...row }: z.infer<typeof LaneRow>): QueueLane => ({
  ...row,
  lane: lane === WHOLE_QUEUE ? null : lane,
  running: row.maxRunning === null && running === 0 ? null : running,
});

/** One page of a tenant's lanes, by queue and lane. */
export function listLanesPage(
  on: SqlExecutor,
  {
    tenantId,
    queue,
    only,
    after,
    limit,
  }: {
    tenantId: string;
    queue: string | undefined;
    only: string | undefined;
    after: { queue: string; lane: string } | undefined;
    limit: number;
  },
): Promise<z.infer<typeof LaneRow>[]> {
  const conditions = [
    sql`l.tenant_id = ${tenantId}::text`,
    ...(queue === undefined ? [] : [sql`l.queue = ${queue}::text`]),
    ...(only === undefined ? [] : [sql`l.lane = ${only}::text`]),
    ...(after === undefined ? [] : [sql`(l.queue, l.lane) > (${after.queue}::text, ${after.lane}::text)`]),
  ];
  return rows(
    on,
    LaneRow,
    sql`SELECT l.queue AS "queue", l.lane AS "lane", l.max_running AS "maxRunning", l.running AS "running",
          runplane.wire_time(l.created_at) AS "createdAt", runplane.wire_time(l.updated_at) AS "updatedAt"
        FROM runplane.queue_lanes l WHERE ${joinSql(conditions, ' AND ')} ORDER BY l.queue, l.lane LIMIT ${limit}::int`,
  );
}
