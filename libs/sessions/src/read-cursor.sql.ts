import type { SessionReadCursor } from '@runplane/contracts';
import { column, oneRow, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { changedSince } from './session-list.sql';

const CursorRow = z.object({ sessionId: column.text, readerId: column.text, sessionVersion: column.int8, readAt: column.time });

// Insert from select with the greater of both versions: the sessions are read, not locked, and a slow mark never takes a later one back. In
// the order of ids, so that two marks of one reader cannot wait for each other in a circle.
const mark = (readerId: string, sessions: Sql): Sql => sql`
  INSERT INTO runplane.session_read_cursors AS c (tenant_id, session_id, reader_id, session_version)
  SELECT s.tenant_id, s.session_id, ${readerId}::text, s.version FROM runplane.sessions s WHERE ${sessions} AND s.deleted_at IS NULL ORDER BY s.session_id COLLATE "C"
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
    sql`${mark(readerId, named)}
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
    ), bound AS (
      INSERT INTO runplane.session_readers AS r (tenant_id, reader_id, read_tx)
      SELECT ${tenantId}::text, ${readerId}::text, changed_tx FROM newest
      ON CONFLICT (tenant_id, reader_id) DO UPDATE SET read_tx = greatest(r.read_tx, excluded.read_tx), read_at = greatest(r.read_at, excluded.read_at)
    ), above AS (${mark(readerId, recent)})
    SELECT runplane.wire_time(runplane.app_now()) AS "readAt"`,
  );
}
