import { SUBMISSION_HEAD_STATES, SUBMISSION_STATES } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import type { SubmissionKey } from '@runplane/sessions';
import { z } from 'zod';
import { bound } from './bound.sql';
import { AHEAD_MAX } from './explain-task.sql';

const FactsRow = z.object({
  kind: column.text,
  state: column.state(SUBMISSION_STATES),
  attempts: column.int,
  lastError: column.text.nullable(),
  runId: column.text.nullable(),
  ahead: column.int,
  /** Of the submission at the head of the session's queue, which may be this one; null: none is unfinished. */
  headOperationId: column.text.nullable(),
  headKind: column.text.nullable(),
  headState: column.state(SUBMISSION_HEAD_STATES).nullable(),
  holder: column.text.nullable(),
  epoch: column.int.nullable(),
  claimInMs: column.int.nullable(),
  readyInMs: column.int.nullable(),
  headTries: column.int.nullable(),
  headError: column.text.nullable(),
  activeRunId: column.text.nullable(),
  isKindServed: column.bool,
});
/** What a submission's explanation is made of, from one snapshot. */
export type ExplainedSubmission = z.infer<typeof FactsRow>;

export function findExplainedSubmission(
  on: SqlExecutor,
  { tenantId, sessionId, operationId }: SubmissionKey,
): Promise<ExplainedSubmission | undefined> {
  return maybeRow(
    on,
    FactsRow,
    sql`
    WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now)
    SELECT s.kind AS "kind", s.state::text AS "state", s.attempts + CASE WHEN h.operation_id = s.operation_id THEN h.attempts ELSE 0 END AS "attempts",
      s.last_error AS "lastError", x.data->>'run_id' AS "runId",
      (SELECT count(*)::int FROM (
        SELECT FROM runplane.submissions a WHERE a.tenant_id = s.tenant_id AND a.session_id = s.session_id AND a.state = 'pending' AND a.place < s.place
        LIMIT ${bound(AHEAD_MAX)}) ahead) AS "ahead",
      h.operation_id AS "headOperationId", h.kind AS "headKind", h.state::text AS "headState", h.owner AS "holder", h.epoch AS "epoch",
      runplane.ms_until(h.expires_at, c.now) AS "claimInMs", runplane.ms_until(h.ready_at, c.now) AS "readyInMs", h.attempts AS "headTries",
      h.last_error AS "headError", z.active_run_id AS "activeRunId",
      EXISTS (SELECT FROM runplane.submission_heads o
        WHERE o.tenant_id = s.tenant_id AND o.kind = h.kind AND o.ready_at > c.now AND o.state = 'claimed') AS "isKindServed"
    FROM c, runplane.submissions s
    JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL
    JOIN runplane.sessions z ON z.tenant_id = s.tenant_id AND z.session_id = s.session_id
    LEFT JOIN runplane.submission_heads h ON h.tenant_id = s.tenant_id AND h.session_id = s.session_id
    LEFT JOIN runplane.session_events x ON x.tenant_id = s.tenant_id AND x.session_id = s.session_id AND x.sequence = s.ended_sequence
    WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.operation_id = ${operationId}::text`,
  );
}
