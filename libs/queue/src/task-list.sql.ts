import { QUEUE_TASK_STATES, type QueueTaskState, type QueueTaskSummary, sessionPathOf } from '@runplane/contracts';
import { column, emptySql, joinSql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { CHANGE_HEAD, changePage, type ChangePage, type ChangesWanted } from '@runplane/outbox';
import { z } from 'zod';
import { bound } from './bound.sql';
import { latestAttempt, SummaryRow, summaryColumns, toAttemptRef, withoutLatest } from './task.sql';

// Lists of tasks. The tenant is spelled COLLATE "C", as their indexes have it, so that a claim cannot take one of these.

const Reader = z.object({ readerId: column.text.nullable(), unread: column.bool.nullable(), readVersion: column.int8.nullable() });
const ListRow = SummaryRow.extend(Reader.shape);

const readerColumns = (readerId: string | undefined): Sql =>
  readerId === undefined
    ? sql`NULL::text AS "readerId", NULL::boolean AS "unread", NULL::text AS "readVersion"`
    : sql`${readerId}::text AS "readerId", ${isUnread(readerId)} AS "unread", ${readVersion(readerId)}::text AS "readVersion"`;
const readVersion = (readerId: string): Sql => sql`(SELECT c.task_version FROM runplane.queue_task_read_cursors c
  WHERE c.tenant_id = t.tenant_id AND c.task_id = t.id AND c.reader_id = ${readerId}::text)`;
const isUnread = (readerId: string): Sql => sql`t.version > coalesce(${readVersion(readerId)}, 0)`;

function toSummary({
  changedTx: _,
  attemptId: __,
  readerId,
  unread,
  readVersion: read,
  ...row
}: z.infer<typeof ListRow>): QueueTaskSummary {
  return {
    ...withoutLatest(row),
    sessionPath: row.sessionId === null ? null : sessionPathOf(row.sessionId),
    latestAttempt: toAttemptRef({ ...row, changedTx: 0n, attemptId: __ }),
    reader: readerId === null || unread === null ? null : { readerId, unread, readVersion: read },
  };
}

/** A place in the order of lists: priority descending, creation, id. None of them ever changes. */
export interface TaskPlace {
  readonly priority: number;
  readonly createdAt: string;
  readonly id: string;
}

const ORDER = sql`ORDER BY t.priority DESC, t.created_at, t.id`;
/** Behind a place, in an order that goes down and then up: two ranges of the index, not one with a filter over what has been seen. */
const behind = ({ priority, createdAt, id }: TaskPlace): Sql[] => [
  sql`AND t.priority = ${priority}::int AND (t.created_at, t.id) > (${createdAt}::timestamptz, ${id}::text)`,
  sql`AND t.priority < ${priority}::int`,
];

/** The queues of a tenant: every task's queue has a lane. One step in the index for each. */
const queuesOf = (tenantId: string, queue: string | undefined): Sql =>
  queue !== undefined
    ? sql`queues AS MATERIALIZED (SELECT ${queue}::text AS queue)`
    : sql`queues (queue) AS (
        (SELECT l.queue FROM runplane.queue_lanes l WHERE l.tenant_id = ${tenantId}::text ORDER BY l.queue LIMIT 1)
        UNION ALL
        SELECT n.queue FROM queues q CROSS JOIN LATERAL
          (SELECT l.queue FROM runplane.queue_lanes l WHERE l.tenant_id = ${tenantId}::text AND l.queue > q.queue ORDER BY l.queue LIMIT 1) n
      )`;

/** The first tasks of each queue and state in one range or more, by one range of the index each: merged, they are the first of all. */
const firstOfEach = (tenantId: string, states: readonly QueueTaskState[], ranges: readonly Sql[], limit: number): Sql => sql`
  SELECT t.* FROM queues q CROSS JOIN unnest(${[...states]}::text[]) AS w (state) CROSS JOIN LATERAL (${joinSql(
    ranges.map(
      (range) => sql`(
    SELECT t.* FROM runplane.queue_tasks t
    WHERE t.tenant_id COLLATE "C" = ${tenantId}::text AND t.queue = q.queue AND t.state = w.state::runplane.queue_task_state ${range}
    ${ORDER} LIMIT ${bound(limit)})`,
    ),
    ' UNION ALL ',
  )}) t`;
const WHOLE: readonly Sql[] = [emptySql];

export interface TaskFilter {
  readonly tenantId: string;
  readonly queue: string | undefined;
  readonly state: QueueTaskState | undefined;
  readonly readerId: string | undefined;
}

/** One page of tasks, highest priority first, then oldest. */
export async function listTasksPage(
  on: SqlExecutor,
  { tenantId, queue, state, readerId }: TaskFilter,
  { after, limit }: { after: TaskPlace | undefined; limit: number },
): Promise<QueueTaskSummary[]> {
  const ranges = after === undefined ? WHOLE : behind(after);
  const found = await rows(
    on,
    ListRow,
    sql`WITH RECURSIVE ${queuesOf(tenantId, queue)}, c AS MATERIALIZED (SELECT runplane.app_now() AS now),
        page AS MATERIALIZED (
          SELECT t.* FROM (${firstOfEach(tenantId, state === undefined ? QUEUE_TASK_STATES : [state], ranges, limit)}) t ${ORDER} LIMIT ${bound(limit)}
        )
        SELECT ${summaryColumns(sql`c.now`)}, ${readerColumns(readerId)} FROM c, page t ${latestAttempt} ${ORDER}`,
  );
  return found.map(toSummary);
}

const NoRow = z.object({ id: z.null() });
const ChangeRow = z.union([ListRow.extend(CHANGE_HEAD), NoRow.extend(CHANGE_HEAD)]);

/**
 * Tasks in the order of their last changes, behind a place and below the horizon: rows and bound from one statement, hence one snapshot. What
 * commits later has a number at or above that horizon. `from: 'end'` gives the last one alone.
 */
export async function listChangesPage(
  on: SqlExecutor,
  { tenantId, readerId, after, limit, from }: ChangesWanted & { readonly tenantId: string; readonly readerId: string | undefined },
): Promise<ChangePage<QueueTaskSummary>> {
  const range =
    from === 'end'
      ? sql`ORDER BY t.changed_tx DESC, t.id DESC LIMIT 1`
      : sql`AND (t.changed_tx, t.id) > (${String(after.changedTx)}::bigint, ${after.id}::text) ORDER BY t.changed_tx, t.id LIMIT ${bound(limit)}`;
  const found = await rows(
    on,
    ChangeRow,
    sql`WITH h AS MATERIALIZED (SELECT runplane.feed_horizon() AS horizon, store_id, runplane.app_now() AS now FROM runplane.store),
        page AS MATERIALIZED (
          SELECT t.* FROM runplane.queue_tasks t WHERE t.tenant_id COLLATE "C" = ${tenantId}::text AND t.changed_tx < (SELECT horizon FROM h) ${range}
        )
        SELECT h.store_id AS "storeId", h.horizon::text AS "horizon", ${summaryColumns(sql`h.now`)}, ${readerColumns(readerId)}
        FROM h LEFT JOIN page t ON true ${latestAttempt} ORDER BY t.changed_tx, t.id`,
  );
  return changePage(found, (row) => {
    if (row.id === null) return undefined;
    const { storeId: _, horizon: __, ...task } = row;
    return { place: { changedTx: row.changedTx, id: row.id }, row: toSummary(task) };
  });
}

/**
 * What wants a look, unread first: open, failed and blocked tasks in the order of lists; and, for a reader, those that have ended otherwise and that it
 * has not seen, among the newest changes. Each part is bounded before they are merged.
 */
export async function listForCommander(
  on: SqlExecutor,
  { tenantId, queue, readerId }: Omit<TaskFilter, 'state'>,
  { limit, scanRows }: { limit: number; scanRows: number },
): Promise<QueueTaskSummary[]> {
  const inQueue = queue === undefined ? emptySql : sql`AND t.queue = ${queue}::text`;
  const parts = [
    firstOfEach(tenantId, WANTING, WHOLE, limit),
    ...(readerId === undefined
      ? []
      : [
          sql`SELECT t.* FROM (${firstOfEach(tenantId, WANTING, WHOLE, scanRows)}) t WHERE ${isUnread(readerId)} ${ORDER} LIMIT ${bound(limit)}`,
          sql`SELECT t.* FROM (
                SELECT t.* FROM runplane.queue_tasks t WHERE t.tenant_id COLLATE "C" = ${tenantId}::text ORDER BY t.changed_tx DESC, t.id DESC LIMIT ${bound(scanRows)}
              ) t WHERE t.state IN ('completed', 'cancelled') AND ${isUnread(readerId)} ${inQueue} ${ORDER} LIMIT ${bound(limit)}`,
        ]),
  ];
  const unreadFirst = readerId === undefined ? emptySql : sql`(${isUnread(readerId)}) DESC,`;
  const found = await rows(
    on,
    ListRow,
    sql`WITH RECURSIVE ${queuesOf(tenantId, queue)}, c AS MATERIALIZED (SELECT runplane.app_now() AS now),
        candidates AS MATERIALIZED (${joinSql(
          parts.map((part) => sql`(SELECT p.id FROM (${part}) p)`),
          ' UNION ',
        )}),
        page AS MATERIALIZED (
          SELECT t.* FROM candidates x CROSS JOIN LATERAL
            (SELECT t.* FROM runplane.queue_tasks t WHERE t.tenant_id = ${tenantId}::text AND t.id = x.id OFFSET 0) t
          ORDER BY ${unreadFirst} t.priority DESC, t.created_at, t.id LIMIT ${bound(limit)}
        )
        SELECT ${summaryColumns(sql`c.now`)}, ${readerColumns(readerId)} FROM c, page t ${latestAttempt}
        ORDER BY ${unreadFirst} t.priority DESC, t.created_at, t.id`,
  );
  return found.map(toSummary);
}

const WANTING: readonly QueueTaskState[] = ['pending', 'running', 'failed', 'blocked'];

const StatsRow = z.object({
  state: column.text.nullable(),
  lane: column.text.nullable(),
  profile: column.text.nullable(),
  part: column.int,
  n: column.int,
  oldestPendingAt: column.time.nullable(),
  newest: column.text.nullable(),
  generatedAt: column.time,
});
export type StatsRow = z.infer<typeof StatsRow>;

/** Which of the groupings a row of the numbers belongs to, as GROUPING(state, lane, profile) has it. */
export const STATS_PART = { byState: 0b011, byLane: 0b101, byProfile: 0b110, all: 0b111 } as const;

/** The numbers of a tenant's tasks, of one queue or of all, in one pass over its rows. No payload is read. */
export function readStats(on: SqlExecutor, { tenantId, queue }: { tenantId: string; queue: string | undefined }): Promise<StatsRow[]> {
  const inQueue = queue === undefined ? emptySql : sql`AND t.queue = ${queue}::text`;
  return rows(
    on,
    StatsRow,
    sql`SELECT t.state::text AS "state", t.lane AS "lane", t.backend_profile AS "profile", GROUPING(t.state, t.lane, t.backend_profile) AS "part",
          count(*)::int AS "n", runplane.wire_time(min(t.created_at) FILTER (WHERE t.state = 'pending')) AS "oldestPendingAt",
          max(t.changed_tx)::text AS "newest", runplane.wire_time(runplane.app_now()) AS "generatedAt"
        FROM runplane.queue_tasks t WHERE t.tenant_id COLLATE "C" = ${tenantId}::text ${inQueue}
        GROUP BY GROUPING SETS ((t.state), (t.lane), (t.backend_profile), ())`,
  );
}

const CursorRow = z.object({ taskId: column.text, readerId: column.text, taskVersion: column.int8, readAt: column.time });

/**
 * Marks tasks read up to their present versions; those that are not there are not in the result. Insert from select with the greater of both versions:
 * tasks are read, not locked, and a slow mark never takes a later one back. In the order of ids, so that two marks of one reader cannot wait
 * for each other in a circle.
 */
export function markTasksRead(
  on: SqlExecutor,
  { tenantId, readerId, taskIds }: { tenantId: string; readerId: string; taskIds: readonly string[] },
): Promise<z.infer<typeof CursorRow>[]> {
  return rows(
    on,
    CursorRow,
    sql`INSERT INTO runplane.queue_task_read_cursors AS c (tenant_id, task_id, reader_id, task_version)
        SELECT t.tenant_id, t.id, ${readerId}::text, t.version FROM runplane.queue_tasks t
        WHERE t.tenant_id = ${tenantId}::text AND t.id = ANY (${[...taskIds]}::text[]) ORDER BY t.id COLLATE "C"
        ON CONFLICT (tenant_id, task_id, reader_id)
        DO UPDATE SET task_version = greatest(c.task_version, excluded.task_version), read_at = greatest(c.read_at, excluded.read_at)
        RETURNING c.task_id AS "taskId", c.reader_id AS "readerId", c.task_version::text AS "taskVersion", runplane.wire_time(c.read_at) AS "readAt"`,
  );
}
