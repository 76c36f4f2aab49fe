import { column, emptySql, maybeRow, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from './session.sql';

// The lease stands on the head, the row that every append locks: who passed its check under that lock has committed before a new holder can be
// (OWN-3). One lock-first statement each; the clock is read after the wait (OWN-2). They answer always with one row, unless there is no session.

const LeaseRow = z.object({
  granted: column.bool,
  owner: column.text.nullable(),
  epoch: column.int,
  expiresAt: column.time.nullable(),
  remainingMs: column.int.nullable(),
  copying: column.bool,
  deletedAt: column.time.nullable(),
});
export type LeaseRow = z.infer<typeof LeaseRow>;

const lockedHead = ({ tenantId, sessionId }: SessionKey, how: Sql = emptySql): Sql => sql`
  l AS MATERIALIZED (
    SELECT tenant_id, session_id, lease_owner, lease_epoch, lease_expires_at, copying, deleted_at FROM runplane.session_heads
    WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE ${how}
  ), j AS MATERIALIZED (SELECT x.*, x.lease_owner IS NOT NULL AND x.lease_expires_at > x.now AS live FROM (SELECT l.*, runplane.app_now() AS now FROM l OFFSET 0) x)`;

const COLUMNS = sql`runplane.ms_until(expires_at, now) AS "remainingMs", runplane.wire_time(expires_at) AS "expiresAt", copying AS "copying",
  runplane.wire_time(deleted_at) AS "deletedAt"`;

const after = (leaseMs: number): Sql => sql`j.now + ${leaseMs}::int * interval '1 millisecond'`;

/**
 * Gives the lease to this owner: a free or ended one under the next epoch, its own prolonged and never shortened. `granted` false: another owner
 * holds it, or the session is deleted.
 */
export function acquireLease(
  on: SqlExecutor,
  key: SessionKey,
  { owner, leaseMs }: { owner: string; leaseMs: number },
): Promise<LeaseRow | undefined> {
  return maybeRow(
    on,
    LeaseRow,
    sql`
    WITH ${lockedHead(key)}, g AS MATERIALIZED (
      SELECT j.*, j.deleted_at IS NULL AND (NOT j.live OR j.lease_owner = ${owner}::text) AS granted FROM j
    ), u AS (
      UPDATE runplane.session_heads t SET lease_owner = ${owner}::text, lease_epoch = t.lease_epoch + (NOT j.live)::int,
        lease_expires_at = CASE WHEN j.live THEN greatest(t.lease_expires_at, ${after(leaseMs)}) ELSE ${after(leaseMs)} END
      FROM g j WHERE j.granted AND t.tenant_id = j.tenant_id AND t.session_id = j.session_id
      RETURNING t.lease_owner, t.lease_epoch, t.lease_expires_at
    )
    SELECT granted AS "granted", owner AS "owner", epoch AS "epoch", ${COLUMNS} FROM (
      SELECT g.granted, g.now, g.copying, g.deleted_at, coalesce(u.lease_owner, g.lease_owner) AS owner, coalesce(u.lease_epoch, g.lease_epoch) AS epoch,
        coalesce(u.lease_expires_at, g.lease_expires_at) AS expires_at
      FROM g LEFT JOIN u ON true
    ) a`,
  );
}

/** Prolongs a lease that is in force under this owner and epoch, never shortens it. `wait: false`: no row also where somebody holds the head. */
export function renewLease(
  on: SqlExecutor,
  key: SessionKey,
  { owner, epoch, leaseMs, wait }: { owner: string; epoch: number; leaseMs: number; wait: boolean },
): Promise<LeaseRow | undefined> {
  return maybeRow(
    on,
    LeaseRow,
    sql`
    WITH ${lockedHead(key, wait ? emptySql : sql`SKIP LOCKED`)}, g AS MATERIALIZED (
      SELECT j.*, j.deleted_at IS NULL AND j.live AND j.lease_owner = ${owner}::text AND j.lease_epoch = ${epoch}::int AS granted FROM j
    ), u AS (
      UPDATE runplane.session_heads t SET lease_expires_at = greatest(t.lease_expires_at, ${after(leaseMs)})
      FROM g j WHERE j.granted AND t.tenant_id = j.tenant_id AND t.session_id = j.session_id
      RETURNING t.lease_expires_at
    )
    SELECT granted AS "granted", owner AS "owner", epoch AS "epoch", ${COLUMNS} FROM (
      SELECT g.granted, g.now, g.copying, g.deleted_at, g.lease_owner AS owner, g.lease_epoch AS epoch,
        coalesce(u.lease_expires_at, g.lease_expires_at) AS expires_at
      FROM g LEFT JOIN u ON true
    ) a`,
  );
}

/** Ends a lease that stands under this owner and epoch, also one that has run out; the epoch stays, and the next grant has a greater one. */
export async function endLease(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  { owner, epoch }: { owner: string; epoch: number },
): Promise<boolean> {
  const ended = await maybeRow(
    on,
    z.object({ done: column.int }),
    sql`UPDATE runplane.session_heads SET lease_owner = NULL, lease_expires_at = NULL
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND lease_owner = ${owner}::text AND lease_epoch = ${epoch}::int
        RETURNING 1 AS "done"`,
  );
  return ended !== undefined;
}

/** Takes the lease away from whoever holds it; the epoch grows, so that a holder is fenced at once (OWN-1). */
export const takeLeaseAway = sql`lease_epoch = lease_epoch + (lease_owner IS NOT NULL)::int, lease_owner = NULL, lease_expires_at = NULL`;

/** As an operation of its own; false: nobody held it. */
export async function revokeLease(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<boolean> {
  const revoked = await maybeRow(
    on,
    z.object({ done: column.int }),
    sql`UPDATE runplane.session_heads SET ${takeLeaseAway}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND lease_owner IS NOT NULL RETURNING 1 AS "done"`,
  );
  return revoked !== undefined;
}
