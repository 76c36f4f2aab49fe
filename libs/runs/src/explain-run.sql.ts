import { CANCEL_STAGES, INTENT_STATES } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { STATE_SHAPE, stateColumns, type RunKey } from './run.sql';

const Facts = z.object({
  ...STATE_SHAPE,
  failureKind: column.text.nullable(),
  failureMessage: column.text.nullable(),
  cancelDeadlineInMs: column.int.nullable(),
  leaseInMs: column.int.nullable(),
  heartbeatAgoMs: column.int.nullable(),
  cancelStage: column.state(CANCEL_STAGES).nullable(),
  cancelReason: column.text.nullable(),
  cancelRequestedBy: column.text.nullable(),
  openCommands: column.int,
  pendingCommandId: column.text.nullable(),
  pendingCommandType: column.text.nullable(),
  pendingCommandForMs: column.int.nullable(),
  cancelledCommandId: column.text.nullable(),
  commandCancelInMs: column.int.nullable(),
  intentState: column.state(INTENT_STATES).nullable(),
  intentAttempts: column.int.nullable(),
  intentReadyInMs: column.int.nullable(),
  intentOwner: column.text.nullable(),
  intentLeaseInMs: column.int.nullable(),
  intentError: column.text.nullable(),
  jobName: column.text.nullable(),
  jobLauncher: column.text.nullable(),
  jobResult: column.jsonObject.nullable(),
  lastEventSeq: column.int8,
  lastEventType: column.text.nullable(),
  lastEventAgoMs: column.int.nullable(),
  lastToolCallId: column.text.nullable(),
  lastToolName: column.text.nullable(),
  askedKind: column.state(['approval', 'input']).nullable(),
  askedId: column.text.nullable(),
  askedWhat: column.text.nullable(),
  askedForMs: column.int.nullable(),
  askedEndsInMs: column.int.nullable(),
  askedSessionId: column.text.nullable(),
});
/** What is known of a run at one moment; times are milliseconds from the database's clock. */
export type ExplainedRun = z.infer<typeof Facts>;

/** Everything that an explanation looks at, from one snapshot. Each part is one row by an index. */
export function findExplainedRun(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<ExplainedRun | undefined> {
  return maybeRow(
    on,
    Facts,
    sql`WITH clock AS MATERIALIZED (SELECT runplane.app_now() AS now)
    SELECT ${stateColumns(sql`now`)}, r.failure_kind AS "failureKind", r.failure_message AS "failureMessage",
      runplane.ms_until(r.cancel_deadline_at, now) AS "cancelDeadlineInMs",
      runplane.ms_until(k.expires_at, now) AS "leaseInMs", runplane.ms_until(now, k.heartbeat_at) AS "heartbeatAgoMs",
      q.stage::text AS "cancelStage", q.reason AS "cancelReason", q.requested_by AS "cancelRequestedBy",
      (SELECT count(*)::int FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.state IN ('pending', 'acknowledged')) AS "openCommands",
      p.id AS "pendingCommandId", p.type AS "pendingCommandType", runplane.ms_until(now, p.updated_at) AS "pendingCommandForMs",
      x.id AS "cancelledCommandId", runplane.ms_until(x.cancel_deadline_at, now) AS "commandCancelInMs",
      i.state::text AS "intentState", i.attempts AS "intentAttempts", runplane.ms_until(i.ready_at, now) AS "intentReadyInMs",
      i.owner AS "intentOwner", runplane.ms_until(i.expires_at, now) AS "intentLeaseInMs", i.last_error AS "intentError",
      j.job_name AS "jobName", j.launcher AS "jobLauncher", j.result::text AS "jobResult",
      r.last_event_seq::text AS "lastEventSeq", e.type AS "lastEventType", runplane.ms_until(now, e.created_at) AS "lastEventAgoMs",
      CASE e.type WHEN 'tool_call' THEN e.tool_call_id END AS "lastToolCallId", CASE e.type WHEN 'tool_call' THEN e.payload ->> 'name' END AS "lastToolName",
      o.kind AS "askedKind", o.id AS "askedId", o.what AS "askedWhat", runplane.ms_until(now, o.created_at) AS "askedForMs",
      runplane.ms_until(o.expires_at, now) AS "askedEndsInMs", o.session_id AS "askedSessionId"
    FROM clock, runplane.runs r
    LEFT JOIN runplane.run_leases k ON k.tenant_id = r.tenant_id AND k.run_id = r.id
    LEFT JOIN runplane.cancel_requests q ON q.tenant_id = r.tenant_id AND q.id = r.cancel_request_id
    LEFT JOIN LATERAL (
      SELECT id, type, updated_at FROM runplane.commands c
      WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.state = 'pending' ORDER BY c.seq LIMIT 1
    ) p ON true
    LEFT JOIN LATERAL (
      SELECT id, cancel_deadline_at FROM runplane.commands c
      WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.state IN ('pending', 'acknowledged') AND c.cancel_request_id IS NOT NULL ORDER BY c.seq LIMIT 1
    ) x ON true
    LEFT JOIN LATERAL (
      SELECT * FROM runplane.dispatch_intents i WHERE i.tenant_id = r.tenant_id AND i.run_id = r.id ORDER BY i.created_at DESC, i.generation DESC, i.id DESC LIMIT 1
    ) i ON true
    LEFT JOIN LATERAL (
      SELECT * FROM runplane.runner_jobs j WHERE j.tenant_id = r.tenant_id AND j.run_id = r.id ORDER BY j.created_at DESC, j.id DESC LIMIT 1
    ) j ON true
    LEFT JOIN LATERAL (
      SELECT * FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
      SELECT * FROM (
        (SELECT 'approval' AS kind, a.approval_id AS id, a.tool_name AS what, a.created_at, a.expires_at, a.session_id FROM runplane.approvals a
         WHERE a.tenant_id = r.tenant_id AND a.session_id = r.session_id AND a.run_id = r.id AND a.state = 'pending' ORDER BY a.created_at, a.approval_id LIMIT 1)
        UNION ALL
        (SELECT 'input', a.request_id, left(a.prompt, 80), a.created_at, a.expires_at, a.session_id FROM runplane.input_requests a
         WHERE a.tenant_id = r.tenant_id AND a.session_id = r.session_id AND a.run_id = r.id AND a.state = 'pending' ORDER BY a.created_at, a.request_id LIMIT 1)
      ) o ORDER BY created_at LIMIT 1
    ) o ON true
    WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
}
