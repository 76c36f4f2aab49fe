import { RUN_STATES } from '@runplane/contracts';
import { column, emptySql, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const RENEWALS = ['renewed', 'expired', 'lost', 'locked'] as const;
export type Renewal = (typeof RENEWALS)[number];

/**
 * Prolongs a lease, lock first: the clock is read after the lock is held (OWN-2). `lost` also where there is no lease; `locked` where
 * somebody else has the row and `wait` is false.
 */
export async function renewLease(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
  { epoch, leaseMs, wait }: { epoch: number; leaseMs: number; wait: boolean },
): Promise<Renewal> {
  const row = await maybeRow(
    on,
    z.object({ renewal: column.state(RENEWALS) }),
    sql`
    WITH l AS MATERIALIZED (
      SELECT tenant_id, run_id, epoch, expires_at FROM runplane.run_leases
      WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text FOR NO KEY UPDATE ${wait ? emptySql : sql`SKIP LOCKED`}
    ), locked AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM l),
    d AS MATERIALIZED (
      SELECT locked.*, CASE WHEN epoch <> ${epoch}::int THEN 'lost' WHEN expires_at <= now THEN 'expired' ELSE 'renewed' END AS renewal FROM locked
    ), u AS (
      UPDATE runplane.run_leases k SET expires_at = d.now + ${leaseMs}::int * interval '1 millisecond', heartbeat_at = d.now
      FROM d WHERE d.renewal = 'renewed' AND (k.tenant_id, k.run_id) = (d.tenant_id, d.run_id)
    )
    SELECT renewal AS "renewal" FROM d
    UNION ALL SELECT 'locked' FROM runplane.run_leases
      WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND NOT ${wait}::bool AND NOT EXISTS (SELECT FROM d)`,
  );
  return row?.renewal ?? 'lost';
}

const FactsRow = z.object({
  status: column.state(RUN_STATES),
  claimEpoch: column.int,
  cancelRequestId: column.text.nullable(),
  cancelReason: column.text.nullable(),
  cancelDeadlineInMs: column.int.nullable(),
  durationDeadlineInMs: column.int.nullable(),
  cancelledCommands: column.json.pipe(z.array(z.string())),
  serverTime: column.time,
});

/** What a runner is told with its heartbeat. */
export function findHeartbeatFacts(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<z.infer<typeof FactsRow> | undefined> {
  return maybeRow(
    on,
    FactsRow,
    sql`
    SELECT r.status::text AS "status", r.claim_epoch AS "claimEpoch", r.cancel_request_id AS "cancelRequestId", r.cancel_reason AS "cancelReason",
      runplane.ms_until(r.cancel_deadline_at, runplane.app_now()) AS "cancelDeadlineInMs",
      runplane.ms_until(r.duration_deadline_at, runplane.app_now()) AS "durationDeadlineInMs",
      coalesce((SELECT json_agg(c.id ORDER BY c.seq) FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id
        AND c.state IN ('pending', 'acknowledged') AND c.cancel_request_id IS NOT NULL), '[]')::text AS "cancelledCommands",
      runplane.wire_time(runplane.app_now()) AS "serverTime"
    FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
}
