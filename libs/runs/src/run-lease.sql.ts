import { column, maybeRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const LeaseRow = z.object({ runnerId: column.text, epoch: column.int, expiresInMs: column.int, expiresAt: column.time });
export type RunLease = z.infer<typeof LeaseRow>;

/** Locks the lease of a locked run; undefined when nobody holds it. The clock is read after the lock is held (OWN-2). */
export function lockRunLease(tx: Tx, { tenantId, runId }: RunKey): Promise<RunLease | undefined> {
  takingLock(tx, 'runLease', `${tenantId}/${runId}`);
  return maybeRow(
    tx,
    LeaseRow,
    sql`WITH k AS MATERIALIZED (
          SELECT runner_id, epoch, expires_at FROM runplane.run_leases
          WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text FOR NO KEY UPDATE
        )
        SELECT runner_id AS "runnerId", epoch AS "epoch", runplane.ms_until(expires_at, runplane.app_now()) AS "expiresInMs",
          runplane.wire_time(expires_at) AS "expiresAt" FROM k`,
  );
}

/** Ends the hold on a locked run, whoever has it. */
export async function deleteRunLease(tx: Tx, { tenantId, runId }: RunKey): Promise<void> {
  takingLock(tx, 'runLease', `${tenantId}/${runId}`);
  await tx.query(sql`DELETE FROM runplane.run_leases WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text`);
}

const KeyRow = z.object({ tenantId: column.text, runId: column.text });

/** Leases that have ended, longest first; the sweeper looks again under the run's lock. */
export function listEndedLeases(on: SqlExecutor, limit: number): Promise<RunKey[]> {
  return rows(
    on,
    KeyRow,
    sql`SELECT tenant_id AS "tenantId", run_id AS "runId" FROM runplane.run_leases
        WHERE expires_at <= (SELECT runplane.app_now()) ORDER BY expires_at, tenant_id, run_id LIMIT ${limit}::int`,
  );
}
