import type { Run } from '@runplane/contracts';
import { column, maybeRow, rows, sql, type SqlExecutor } from '@runplane/database';
import type { SessionKey } from '@runplane/sessions';
import { z } from 'zod';
import { findRunWhere, type RunKey } from './run.sql';

// What sessions ask of their runs.

/** The newest run of a session with a resource bundle. */
export function findLatestResourceRun(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<Run | undefined> {
  return findRunWhere(
    on,
    sql`r.tenant_id = ${tenantId}::text AND r.session_id = ${sessionId}::text AND jsonb_typeof(r.resource_bundle_ref) = 'object'
        ORDER BY r.created_at DESC, r.id DESC LIMIT 1`,
  );
}

/** When the newest event of a run was written. */
export async function findLastEventTime(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<string | undefined> {
  const event = await maybeRow(
    on,
    z.object({ time: column.time }),
    sql`SELECT runplane.wire_time(created_at) AS "time" FROM runplane.run_events
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text ORDER BY seq DESC LIMIT 1`,
  );
  return event?.time;
}

const ActivityRow = z.object({ tenantId: column.text, sessionId: column.text, time: column.time });
export type SessionActivity = z.infer<typeof ActivityRow>;

/** Sessions of claimed runs whose newest event is later than the session's row knows, by more than `behindMs`. */
export function listUnfoldedActivity(
  on: SqlExecutor,
  { behindMs, limit }: { behindMs: number; limit: number },
): Promise<SessionActivity[]> {
  return rows(
    on,
    ActivityRow,
    sql`SELECT s.tenant_id AS "tenantId", s.session_id AS "sessionId", runplane.wire_time(e.created_at) AS "time"
        FROM runplane.run_leases k
        JOIN runplane.runs r ON r.tenant_id = k.tenant_id AND r.id = k.run_id
        JOIN runplane.sessions s ON s.tenant_id = r.tenant_id AND s.session_id = r.session_id
        CROSS JOIN LATERAL (
          SELECT e.created_at FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1
        ) e
        WHERE e.created_at > s.last_activity_at + ${behindMs}::int * interval '1 millisecond' LIMIT ${limit}::int`,
  );
}

/** Which of the sessions have a run that has not ended. */
export function listBusySessions(on: SqlExecutor, sessions: readonly SessionKey[]): Promise<SessionKey[]> {
  return rows(
    on,
    z.object({ tenantId: column.text, sessionId: column.text }),
    sql`SELECT c.tenant_id AS "tenantId", c.session_id AS "sessionId"
        FROM unnest(${sessions.map(({ tenantId }) => tenantId)}::text[], ${sessions.map(({ sessionId }) => sessionId)}::text[]) c (tenant_id, session_id)
        WHERE EXISTS (SELECT FROM runplane.runs r WHERE r.tenant_id = c.tenant_id AND r.session_id = c.session_id AND r.finished_at IS NULL)`,
  );
}

/** Ended runs of a session, the first ones first. */
export async function listEndedRunsOfSession(on: SqlExecutor, { tenantId, sessionId }: SessionKey, limit: number): Promise<string[]> {
  const found = await rows(
    on,
    z.object({ runId: column.text }),
    sql`SELECT id AS "runId" FROM runplane.runs
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND finished_at IS NOT NULL ORDER BY created_at, id LIMIT ${limit}::int`,
  );
  return found.map(({ runId }) => runId);
}
