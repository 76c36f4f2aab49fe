import { REBUILD_ATTEMPTS_MAX, type SessionProjection } from '@runplane/contracts';
import { column, emptySql, oneRow, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

const HeadPlaceRow = z.object({ tenantId: column.text, sessionId: column.text, viewsVersion: column.int });
/** Where a search over the heads of older rules goes on. */
export type HeadPlace = z.infer<typeof HeadPlaceRow>;

/** A page of the sessions whose built-in views were built by older rules, or have failed. */
export async function listStaleHeads(
  on: SqlExecutor,
  { olderThan, after, limit }: { olderThan: number; after: HeadPlace | undefined; limit: number },
): Promise<{ sessions: HeadPlace[]; next: HeadPlace | undefined }> {
  const behind =
    after === undefined
      ? emptySql
      : sql`AND (views_version, tenant_id, session_id) > (${after.viewsVersion}::int, ${after.tenantId}::text, ${after.sessionId}::text)`;
  const sessions = await rows(
    on,
    HeadPlaceRow,
    sql`SELECT tenant_id AS "tenantId", session_id AS "sessionId", views_version AS "viewsVersion" FROM runplane.session_heads
        WHERE views_version < ${olderThan}::int AND deleted_at IS NULL ${behind}
        ORDER BY views_version, tenant_id, session_id LIMIT ${limit}::int`,
  );
  return { sessions, next: sessions.length < limit ? undefined : sessions.at(-1) };
}

const CountsRow = z.object({
  staleCount: column.int,
  waitingCount: column.int,
  runningCount: column.int,
  failingCount: column.int,
  givenUpCount: column.int,
  oldestRequestedAt: column.time.nullable(),
  firstError: column.text.nullable(),
});
export type RebuildCounts = z.infer<typeof CountsRow>;

/** Counts sessions whose views are of older rules, and rebuilds that are not done; each up to `countMax`, of one tenant or of all. */
export function countRebuilds(
  on: SqlExecutor,
  { olderThan, tenantId, countMax }: { olderThan: number; tenantId: string | undefined; countMax: number },
): Promise<RebuildCounts> {
  const ofTenant = tenantId === undefined ? emptySql : sql`AND tenant_id = ${tenantId}::text`;
  return oneRow(
    on,
    CountsRow,
    sql`WITH r AS (
          SELECT state, attempts, requested_at, last_error, ready_at FROM runplane.session_rebuilds
          WHERE state IN ('waiting', 'running') ${ofTenant} ORDER BY ready_at LIMIT ${countMax}::int
        )
        SELECT (SELECT count(*) FROM (SELECT FROM runplane.session_heads WHERE views_version < ${olderThan}::int AND deleted_at IS NULL ${ofTenant}
            ORDER BY views_version LIMIT ${countMax}::int) s)::int AS "staleCount",
          (count(*) FILTER (WHERE state = 'waiting'))::int AS "waitingCount", (count(*) FILTER (WHERE state = 'running'))::int AS "runningCount",
          (count(*) FILTER (WHERE state = 'waiting' AND last_error IS NOT NULL))::int AS "failingCount",
          (count(*) FILTER (WHERE state = 'waiting' AND attempts >= ${REBUILD_ATTEMPTS_MAX}::int))::int AS "givenUpCount",
          runplane.wire_time(min(requested_at)) AS "oldestRequestedAt",
          (SELECT last_error FROM r WHERE last_error IS NOT NULL ORDER BY ready_at LIMIT 1) AS "firstError"
        FROM r`,
  );
}

/** Counts the sessions of the store whose built-in views were built by older rules, or have failed, by the index that finds them; up to `countMax`. */
export async function countStaleHeads(on: SqlExecutor, { olderThan, countMax }: { olderThan: number; countMax: number }): Promise<number> {
  const { n } = await oneRow(
    on,
    z.object({ n: column.int }),
    sql`SELECT count(*)::int AS "n" FROM (SELECT FROM runplane.session_heads WHERE views_version < ${olderThan}::int AND deleted_at IS NULL
          ORDER BY views_version LIMIT ${countMax}::int) s`,
  );
  return n;
}

const ScannedRow = z.object({ tenantId: column.text, sessionId: column.text, stale: column.bool });

/** Looks at a page of sessions for views of registered projections that are missing, stale or of an older version. */
export async function listStaleTeamViews(
  on: SqlExecutor,
  { projections, after, limit }: { projections: readonly SessionProjection[]; after: SessionKey | undefined; limit: number },
): Promise<{ sessions: SessionKey[]; next: SessionKey | undefined }> {
  const scanned = await rows(
    on,
    ScannedRow,
    sql`WITH page AS MATERIALIZED (
          SELECT tenant_id, session_id FROM runplane.session_heads
          WHERE deleted_at IS NULL AND last_sequence >= 0 ${after === undefined ? emptySql : behindKey(after)}
          ORDER BY tenant_id, session_id LIMIT ${limit}::int
        )
        SELECT p.tenant_id AS "tenantId", p.session_id AS "sessionId", EXISTS (
          SELECT FROM unnest(${projections.map(({ key }) => key)}::text[], ${projections.map(({ version }) => version)}::int[]) k (key, version)
          WHERE NOT EXISTS (
            SELECT FROM runplane.session_views v
            WHERE v.tenant_id = p.tenant_id AND v.session_id = p.session_id AND v.key = k.key
              AND (v.version > k.version OR (v.version = k.version AND v.stale_reason IS NULL)))
        ) AS "stale"
        FROM page p ORDER BY p.tenant_id, p.session_id`,
  );
  return { sessions: scanned.filter(({ stale }) => stale), next: scanned.length < limit ? undefined : scanned.at(-1) };
}

const behindKey = ({ tenantId, sessionId }: SessionKey) => sql`AND (tenant_id, session_id) > (${tenantId}::text, ${sessionId}::text)`;

const KeyRow = z.object({ tenantId: column.text, sessionId: column.text });

/** A page of all sessions, or of one tenant's. */
export function listLogs(
  on: SqlExecutor,
  { tenantId, after, limit }: { tenantId: string | undefined; after: SessionKey | undefined; limit: number },
): Promise<SessionKey[]> {
  return rows(
    on,
    KeyRow,
    sql`SELECT tenant_id AS "tenantId", session_id AS "sessionId" FROM runplane.session_heads
        WHERE deleted_at IS NULL ${tenantId === undefined ? emptySql : sql`AND tenant_id = ${tenantId}::text`} ${after === undefined ? emptySql : behindKey(after)}
        ORDER BY tenant_id, session_id LIMIT ${limit}::int`,
  );
}
