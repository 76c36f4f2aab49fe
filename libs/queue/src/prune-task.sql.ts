import { PAGE_BYTES_MAX } from '@runplane/contracts';
import { column, rows, sql, textLines, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { TaskKey } from './task.sql';

// Removal of ended tasks. Due ones are found in the order of the last change, which the list of changes has an index for: what ended long ago has not
// changed since, so it stands in front, and an index of ends, which each end of a task would have to write, is not needed.

const olderThan = (time: Sql, days: number): Sql => sql`${time} <= (SELECT runplane.app_now() - ${days}::int * interval '1 day')`;

/** Ended, and nobody has reserved a retry of it: the newest attempt has ended too. Looked up by key: as NOT EXISTS it reads all attempts there are. */
const mayGo = (days: number): Sql => sql`t.ended_at IS NOT NULL AND ${olderThan(sql`t.ended_at`, days)}
  AND coalesce((SELECT a.terminal_at IS NOT NULL FROM runplane.queue_attempts a
    WHERE a.tenant_id = t.tenant_id AND a.task_id = t.id AND a.retry_index = t.last_retry_index), true)`;

/**
 * Two readings of a task with the same stamp have the same content, attempts included: an ended task's attempts are only added to. One that is written out
 * in between is no change to readers, but its row is none that a removal of the moment before has seen.
 */
const STAMP = sql`t.version || '/' || t.last_retry_index || '/' || (t.attempt_since IS NULL)`;

const PageRow = z.object({
  id: column.text,
  /** Number of its last change. */
  at: column.text,
  isDue: column.bool,
  isOld: column.bool,
  stamp: column.text,
  attempts: column.int,
});
export type DueTask = z.infer<typeof PageRow>;

/** A tenant's tasks behind a place, in the order of their last change; `isDue`: it may go. `isOld: false`: nothing behind it is old enough. */
export function listByLastChange(
  on: SqlExecutor,
  { tenantId, days, after, limit }: { tenantId: string; days: number; after: { at: string; id: string } | null; limit: number },
): Promise<DueTask[]> {
  const behind = after === null ? sql`` : sql`AND (t.changed_tx, t.id) > (${after.at}::bigint, ${after.id}::text)`;
  return rows(
    on,
    PageRow,
    sql`SELECT t.id AS "id", t.changed_tx::text AS "at", (${mayGo(days)}) AS "isDue", ${olderThan(sql`t.updated_at`, days)} AS "isOld", ${STAMP} AS "stamp",
          t.last_retry_index + 1 AS "attempts"
        FROM runplane.queue_tasks t WHERE t.tenant_id COLLATE "C" = ${tenantId}::text ${behind} ORDER BY t.changed_tx, t.id LIMIT ${limit}::int`,
  );
}

const RowText = z.object({ place: column.int, row: column.text });

/** A task's row, or a page of its attempts behind one, as the JSON that PostgreSQL makes of a row. */
export function listTaskTexts(
  on: SqlExecutor,
  { tenantId, taskId }: TaskKey,
  after: 'task' | { readonly attempt: number },
): Promise<z.infer<typeof RowText>[]> {
  if (after === 'task')
    return rows(
      on,
      RowText,
      sql`SELECT 0 AS "place", to_json(t)::text AS "row" FROM runplane.queue_tasks t WHERE t.tenant_id = ${tenantId}::text AND t.id = ${taskId}::text`,
    );
  return rows(
    on,
    RowText,
    sql`SELECT place AS "place", "row" FROM (
          SELECT place, "row", sum(octet_length("row")) OVER (ORDER BY place) - octet_length("row") AS bytes_before FROM (
            SELECT a.retry_index AS place, to_json(a)::text AS "row" FROM runplane.queue_attempts_all a
            WHERE a.tenant_id = ${tenantId}::text AND a.task_id = ${taskId}::text AND a.retry_index > ${after.attempt}::int ORDER BY a.retry_index LIMIT 1000
          ) texts
        ) page
        WHERE bytes_before < ${PAGE_BYTES_MAX}::int ORDER BY place`,
  );
}

const GoneRow = z.object({ id: column.text, attempts: column.int });

/** Removes tasks that are still as they were read, with attempts and read marks. Those that somebody has locked stay for the next pass. */
export function deleteTasks(
  on: SqlExecutor,
  { tenantId, days, tasks }: { tenantId: string; days: number; tasks: readonly DueTask[] },
): Promise<z.infer<typeof GoneRow>[]> {
  return rows(
    on,
    GoneRow,
    sql`WITH given AS MATERIALIZED (
          SELECT g.* FROM unnest(${textLines(tasks.map(({ id }) => id))}, ${textLines(tasks.map(({ stamp }) => stamp))}) AS g (id, stamp)
        ), l AS MATERIALIZED (
          SELECT t.tenant_id, t.id FROM given g JOIN runplane.queue_tasks t ON t.tenant_id = ${tenantId}::text AND t.id = g.id
          WHERE ${STAMP} = g.stamp AND ${mayGo(days)} ORDER BY t.id COLLATE "C" FOR UPDATE OF t SKIP LOCKED
        ), tries AS MATERIALIZED (
          SELECT l.tenant_id, l.id, count(a.task_id)::int AS n FROM l
          LEFT JOIN runplane.queue_attempts_all a ON a.tenant_id = l.tenant_id AND a.task_id = l.id GROUP BY 1, 2
        ), gone AS (
          DELETE FROM runplane.queue_attempts a USING l WHERE a.tenant_id = l.tenant_id AND a.task_id = l.id
        )
        DELETE FROM runplane.queue_tasks t USING tries x WHERE t.tenant_id = x.tenant_id AND t.id = x.id RETURNING t.id AS "id", x.n AS "attempts"`,
  );
}
