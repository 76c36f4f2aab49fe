import type { JsonObject, Runner } from '@runplane/contracts';
import { column, newKeyOf, oneRow, sql, takingLock, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

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

/** Records the job that a launch has made; the same job again (an adopted one) keeps its first record and takes the new result. */
export async function upsertRunnerJob(
  tx: Tx,
  job: RunKey & { jobId: string; commandId: string; intentId: string; launcher: string; jobName: string; result: JsonObject },
): Promise<void> {
  takingLock(tx, 'runnerJob', `${job.tenantId}/${job.jobId}`);
  await tx.query(
    sql`
    INSERT INTO runplane.runner_jobs AS j (tenant_id, id, run_id, command_id, intent_id, launcher, job_name, result)
    VALUES (${job.tenantId}::text, ${job.jobId}::text, ${job.runId}::text, ${job.commandId}::text, ${job.intentId}::text, ${job.launcher}::text,
      ${job.jobName}::text, ${JSON.stringify(job.result)}::jsonb)
    ON CONFLICT (tenant_id, id) DO UPDATE SET job_name = excluded.job_name, result = j.result || excluded.result, updated_at = runplane.app_now()`,
  );
}

/** Notes on a job that what was launched is gone. A job that is not recorded has nothing to note. */
export async function writeRunnerJobLost(
  tx: Tx,
  { tenantId, jobId, reason }: { tenantId: string; jobId: string; reason: string },
): Promise<void> {
  takingLock(tx, 'runnerJob', `${tenantId}/${jobId}`);
  await tx.query(
    sql`UPDATE runplane.runner_jobs SET result = result || jsonb_build_object('lost', ${reason}::text), updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND id = ${jobId}::text`,
  );
}
