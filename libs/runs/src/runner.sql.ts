import type { JsonObject, Runner } from '@runplane/contracts';
import { column, newKeyOf, oneRow, sql, takingLock, type Tx } from '@runplane/database';
import { z } from 'zod';

const RunnerRow: z.ZodType<Runner> = z.object({
  id: column.text,
  runId: column.text.nullable(),
  attemptId: column.text.nullable(),
  backendProfile: column.text.nullable(),
  placement: column.text.nullable(),
  sourceCommit: column.text.nullable(),
  metadata: column.jsonObject,
  registeredAt: column.time,
  heartbeatAt: column.time,
});

export interface RunnerFields {
  readonly runId: string | null;
  readonly attemptId: string | null;
  readonly backendProfile: string | null;
  readonly placement: string | null;
  readonly sourceCommit: string | null;
  readonly metadata: JsonObject;
}

/** Registers a runner, or merges the given fields into its row: what is null here keeps its old value. Times are the database's. */
export function upsertRunner(tx: Tx, tenantId: string, runnerId: string, fields: RunnerFields): Promise<Runner> {
  takingLock(tx, 'newKey', newKeyOf.runner(tenantId, runnerId));
  return oneRow(
    tx,
    RunnerRow,
    sql`
    INSERT INTO runplane.runners AS w (tenant_id, id, run_id, attempt_id, backend_profile, placement, source_commit, metadata)
    VALUES (${tenantId}::text, ${runnerId}::text, ${fields.runId}::text, ${fields.attemptId}::text, ${fields.backendProfile}::text, ${fields.placement}::text,
      ${fields.sourceCommit}::text, ${JSON.stringify(fields.metadata)}::jsonb)
    ON CONFLICT (tenant_id, id) DO UPDATE SET run_id = coalesce(excluded.run_id, w.run_id), attempt_id = coalesce(excluded.attempt_id, w.attempt_id),
      backend_profile = coalesce(excluded.backend_profile, w.backend_profile), placement = coalesce(excluded.placement, w.placement),
      source_commit = coalesce(excluded.source_commit, w.source_commit), metadata = w.metadata || excluded.metadata, heartbeat_at = runplane.app_now()
    RETURNING id AS "id", run_id AS "runId", attempt_id AS "attemptId", backend_profile AS "backendProfile", placement AS "placement",
      source_commit AS "sourceCommit", metadata::text AS "metadata", runplane.wire_time(registered_at) AS "registeredAt",
      runplane.wire_time(heartbeat_at) AS "heartbeatAt"`,
  );
}
