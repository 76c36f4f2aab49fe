import type { SessionProjection } from '@runplane/contracts';
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

/** How many sessions have views of older rules, of those that are counted at most. */
export async function countStaleHeads(
  on: SqlExecutor,
  { olderThan, tenantId, countMax }: { olderThan: number; tenantId?: string | undefined; countMax: number },
): Promise<number> {
  const found = await oneRow(
    on,
    z.object({ n: column.int }),
    sql`SELECT count(*)::int AS "n" FROM (
          SELECT FROM runplane.session_heads WHERE views_version < ${olderThan}::int AND deleted_at IS NULL
            ${tenantId === undefined ? emptySql : sql`AND tenant_id = ${tenantId}::text`} LIMIT ${countMax}::int) s`,
  );
  return found.n;
}

const ScannedRow = z.object({ tenantId: column.text, sessionId: column.text, stale: column.bool });

/** Looks at a page of sessions for views of registered projections that are missing, stale or of another version. */
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
            WHERE v.tenant_id = p.tenant_id AND v.session_id = p.session_id AND v.key = k.key AND v.version = k.version AND v.stale_reason IS NULL)
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
