import type { SessionReadCursor } from '@runplane/contracts';
import { column, oneRow, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { changedSince } from './session-list.sql';

const CursorRow = z.object({ sessionId: column.text, readerId: column.text, sessionVersion: column.int8, readAt: column.time });

// Insert from select with the greater of both versions: the sessions are read, not locked, and a slow mark never takes a later one back. In
// the order of ids, so that two marks of one reader cannot wait for each other in a circle.
// The reader's own row comes first, and stands for its marks: retention takes both by it.
const mark = (readerId: string, sessions: Sql): Sql => sql`
  INSERT INTO runplane.session_read_cursors AS c (tenant_id, session_id, reader_id, session_version)
  SELECT s.tenant_id, s.session_id, ${readerId}::text, s.version FROM runplane.sessions s
  WHERE ${sessions} AND s.deleted_at IS NULL AND (SELECT count(*) FROM reader) >= 0 ORDER BY s.session_id COLLATE "C"
  ON CONFLICT (tenant_id, session_id, reader_id)
  DO UPDATE SET session_version = greatest(c.session_version, excluded.session_version), read_at = greatest(c.read_at, excluded.read_at)`;

/** Marks sessions read up to their present versions; those that are not there are not in the result. */
export function markRead(
  on: SqlExecutor,
  { tenantId, readerId, sessionIds }: { tenantId: string; readerId: string; sessionIds: readonly string[] },
): Promise<SessionReadCursor[]> {
  const named = sql`s.tenant_id = ${tenantId}::text AND s.session_id = ANY (${[...sessionIds]}::text[])`;
  return rows(
    on,
    CursorRow,
    sql`WITH reader AS (
      INSERT INTO runplane.session_readers AS r (tenant_id, reader_id, read_tx)
      SELECT ${tenantId}::text, ${readerId}::text, -1 WHERE EXISTS (SELECT FROM runplane.sessions s WHERE ${named} AND s.deleted_at IS NULL)
      ON CONFLICT (tenant_id, reader_id) DO UPDATE SET read_at = excluded.read_at WHERE r.read_at < excluded.read_at - interval '1 hour'
      RETURNING 1
    )
    ${mark(readerId, named)}
    RETURNING c.session_id AS "sessionId", c.reader_id AS "readerId", c.session_version::text AS "sessionVersion", runplane.wire_time(c.read_at) AS "readAt"`,
  );
}

/**
 * Marks every session of a tenant read as it is now: the last change below the horizon becomes the reader's own bound, and what has changed
 * at or above the horizon, which is little, gets cursors. So it costs the same for ten sessions and for a million.
 */
export async function markAllRead(
  on: SqlExecutor,
  { tenantId, readerId }: { tenantId: string; readerId: string },
): Promise<{ readAt: string }> {
  const recent = sql`s.tenant_id COLLATE "C" = ${tenantId}::text AND ${changedSince(sql`>= (SELECT horizon FROM h)`)}`;
  return oneRow(
    on,
    z.object({ readAt: column.time }),
    sql`
    WITH h AS MATERIALIZED (SELECT runplane.feed_horizon() AS horizon),
    newest AS MATERIALIZED (
      SELECT s.changed_tx FROM runplane.sessions s
      WHERE s.tenant_id COLLATE "C" = ${tenantId}::text AND s.changed_tx < (SELECT horizon FROM h)
      ORDER BY s.changed_tx DESC, s.session_id DESC LIMIT 1
    ), reader AS (
      INSERT INTO runplane.session_readers AS r (tenant_id, reader_id, read_tx)
      SELECT ${tenantId}::text, ${readerId}::text, coalesce((SELECT changed_tx FROM newest), -1)
      ON CONFLICT (tenant_id, reader_id) DO UPDATE SET read_tx = greatest(r.read_tx, excluded.read_tx), read_at = greatest(r.read_at, excluded.read_at)
      RETURNING 1
    ), above AS (${mark(readerId, recent)})
    SELECT runplane.wire_time(runplane.app_now()) AS "readAt"`,
  );
}

const MARKS_AT_ONCE = 1_000;

/**
 * Deletes readers that have marked nothing for so many days, with their marks, and gives their ids; of a reader with more marks than go at once
 * that many, and itself another time. Who is marking at this moment is passed over: its own row is locked before its marks.
 */
export async function deleteSilentReaders(
  on: SqlExecutor,
  { tenantId, days, limit, dryRun = false }: { tenantId: string; days: number; limit: number; dryRun?: boolean },
): Promise<string[]> {
  const silent = sql`
      SELECT r.tenant_id, r.reader_id FROM runplane.session_readers r
      WHERE r.tenant_id = ${tenantId}::text AND r.read_at <= (SELECT runplane.app_now() - ${days}::int * interval '1 day')
      ORDER BY r.read_at, r.reader_id LIMIT ${limit}::int`;
  const found = await rows(
    on,
    z.object({ id: column.text }),
    dryRun
      ? sql`SELECT reader_id AS "id" FROM (${silent}) r`
      : sql`WITH silent AS MATERIALIZED (${silent} FOR UPDATE OF r SKIP LOCKED),
          marks AS MATERIALIZED (
            SELECT s.tenant_id, s.reader_id, m.session_id FROM silent s CROSS JOIN LATERAL (
              SELECT c.session_id FROM runplane.session_read_cursors c
              WHERE c.tenant_id = s.tenant_id AND c.reader_id = s.reader_id LIMIT ${MARKS_AT_ONCE + 1}::int
            ) m
          ), gone AS (
            DELETE FROM runplane.session_read_cursors c USING marks m
            WHERE (c.tenant_id, c.session_id, c.reader_id) = (m.tenant_id, m.session_id, m.reader_id)
          ), rest AS (SELECT reader_id FROM marks GROUP BY reader_id HAVING count(*) > ${MARKS_AT_ONCE}::int)
          DELETE FROM runplane.session_readers r USING silent s
          WHERE (r.tenant_id, r.reader_id) = (s.tenant_id, s.reader_id) AND r.reader_id NOT IN (SELECT reader_id FROM rest) RETURNING r.reader_id AS "id"`,
  );
  return found.map(({ id }) => id);
}
