import type { JsonObject, Runner } from '@runplane/contracts';
import { column, joinSql, maybeRow, newKeyOf, oneRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';

export interface RunnerKey {
  readonly tenantId: string;
  readonly runnerId: string;
}

const RunnerRow = z
  .object({
    id: column.text,
    runId: column.text.nullable(),
    attemptId: column.text.nullable(),
    backendProfile: column.text.nullable(),
    placement: column.text.nullable(),
    sourceCommit: column.text.nullable(),
    metadata: column.jsonObject,
    registeredAt: column.time,
    heartbeatAt: column.time,
    lastSeenAt: column.time,
  })
  .transform((row): Runner => ({ ...row.metadata, ...row })); // the registration's own fields lie over what it said besides

/** Seen when it registered, when it said so, and when it renewed a lease. */
const LAST_SEEN = sql`greatest(w.registered_at, w.heartbeat_at,
  (SELECT max(k.heartbeat_at) FROM runplane.run_leases k WHERE k.tenant_id = w.tenant_id AND k.runner_id = w.id))`;
const COLUMNS = sql`
  w.id AS "id", w.run_id AS "runId", w.attempt_id AS "attemptId", w.backend_profile AS "backendProfile", w.placement AS "placement",
  w.source_commit AS "sourceCommit", w.metadata::text AS "metadata", runplane.wire_time(w.registered_at) AS "registeredAt",
  runplane.wire_time(w.heartbeat_at) AS "heartbeatAt", runplane.wire_time(${LAST_SEEN}) AS "lastSeenAt"`;

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
    RETURNING ${COLUMNS}`,
  );
}

/** Notes that a runner lives. Undefined: nobody has registered it. */
export function writeRunnerSeen(on: SqlExecutor, { tenantId, runnerId }: RunnerKey): Promise<Runner | undefined> {
  return maybeRow(
    on,
    RunnerRow,
    sql`UPDATE runplane.runners w SET heartbeat_at = runplane.app_now() WHERE w.tenant_id = ${tenantId}::text AND w.id = ${runnerId}::text RETURNING ${COLUMNS}`,
  );
}

export function findRunner(on: SqlExecutor, { tenantId, runnerId }: RunnerKey): Promise<Runner | undefined> {
  return maybeRow(
    on,
    RunnerRow,
    sql`SELECT ${COLUMNS} FROM runplane.runners w WHERE w.tenant_id = ${tenantId}::text AND w.id = ${runnerId}::text`,
  );
}

/** One page of a tenant's runners, by id. */
export function listRunnersPage(
  on: SqlExecutor,
  { tenantId, runId, backendProfile }: { tenantId: string; runId?: string | undefined; backendProfile?: string | undefined },
  { after, limit }: { after: string | undefined; limit: number },
): Promise<Runner[]> {
  const conditions = [
    sql`w.tenant_id = ${tenantId}::text`,
    ...(runId === undefined ? [] : [sql`w.run_id = ${runId}::text`]),
    ...(backendProfile === undefined ? [] : [sql`w.backend_profile = ${backendProfile}::text`]),
    ...(after === undefined ? [] : [sql`w.id > ${after}::text`]),
  ];
  return rows(
    on,
    RunnerRow,
    sql`SELECT ${COLUMNS} FROM runplane.runners w WHERE ${joinSql(conditions, ' AND ')} ORDER BY w.id LIMIT ${limit}::int`,
  );
}

/**
 * Removes runners that were last heard of before `silentMs`, hold no lease and work for no open run; longest silent first. A runner that speaks up at
 * that moment stays: the lock looks at its newest row. Gives their ids; `dryRun` only says which.
 */
export async function deleteSilentRunners(
  on: SqlExecutor,
  { tenantId, silentMs, limit, dryRun = false }: { tenantId: string; silentMs: number; limit: number; dryRun?: boolean },
): Promise<string[]> {
  const silent = sql`
      SELECT w.tenant_id, w.id FROM runplane.runners w
      WHERE w.tenant_id = ${tenantId}::text AND w.heartbeat_at <= (SELECT runplane.app_now() - ${String(silentMs)}::float8 * interval '1 millisecond')
        AND NOT EXISTS (SELECT FROM runplane.run_leases k WHERE k.tenant_id = w.tenant_id AND k.runner_id = w.id)
        AND NOT EXISTS (SELECT FROM runplane.runs r WHERE r.tenant_id = w.tenant_id AND r.id = w.run_id AND r.finished_at IS NULL)
      ORDER BY w.heartbeat_at, w.id LIMIT ${limit}::int`;
  const found = await rows(
    on,
    z.object({ id: column.text }),
    dryRun
      ? sql`SELECT id AS "id" FROM (${silent}) w`
      : sql`WITH l AS MATERIALIZED (${silent} FOR UPDATE OF w SKIP LOCKED)
          DELETE FROM runplane.runners w USING l WHERE (w.tenant_id, w.id) = (l.tenant_id, l.id) RETURNING w.id AS "id"`,
  );
  return found.map(({ id }) => id);
}
