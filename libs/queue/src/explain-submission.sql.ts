import { SUBMISSION_ATTEMPTS_MAX, SUBMISSION_HEAD_STATES, SUBMISSION_LOOK_HEADS_MAX, SUBMISSION_STATES } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { unfinishedOf, type SubmissionKey } from '@runplane/sessions';
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

/** Heads of its kind that cannot be claimed now: claimed, or put off. So many, and no more: where they hide what else there is, the kind counts as served. */
const headsAhead = sql`
  SELECT o.state FROM runplane.submission_heads o
  WHERE o.tenant_id COLLATE "C" = s.tenant_id AND o.kind COLLATE "C" = h.kind AND o.attempts < ${bound(SUBMISSION_ATTEMPTS_MAX)} AND o.ready_at > c.now
  ORDER BY o.ready_at, o.session_id LIMIT ${bound(SUBMISSION_LOOK_HEADS_MAX)}`;
/** Those that are claimed for the last time are in another index, of all tenants. */
const lastTries = sql`
  SELECT o.tenant_id, o.kind, o.state FROM runplane.submission_heads o
  WHERE o.attempts >= ${bound(SUBMISSION_ATTEMPTS_MAX)} AND o.ready_at > c.now
  ORDER BY o.ready_at, o.tenant_id, o.session_id LIMIT ${bound(SUBMISSION_LOOK_HEADS_MAX)}`;

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
        SELECT FROM runplane.submissions a WHERE ${unfinishedOf('a', sql`s.tenant_id`, sql`s.session_id`)} AND a.place < s.place
        LIMIT ${bound(AHEAD_MAX)}) ahead) AS "ahead",
      h.operation_id AS "headOperationId", h.kind AS "headKind", h.state::text AS "headState", h.owner AS "holder", h.epoch AS "epoch",
      runplane.ms_until(h.expires_at, c.now) AS "claimInMs", runplane.ms_until(h.ready_at, c.now) AS "readyInMs", h.attempts AS "headTries",
      h.last_error AS "headError", z.active_run_id AS "activeRunId",
      coalesce((SELECT bool_or(o.state = 'claimed') OR count(*) >= ${bound(SUBMISSION_LOOK_HEADS_MAX)} FROM (${headsAhead}) o), false)
        OR EXISTS (SELECT FROM (${lastTries}) o WHERE o.tenant_id = s.tenant_id AND o.kind = h.kind AND o.state = 'claimed') AS "isKindServed"
    FROM c, runplane.submissions s
    JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL
    JOIN runplane.sessions z ON z.tenant_id = s.tenant_id AND z.session_id = s.session_id
    LEFT JOIN runplane.submission_heads h ON h.tenant_id = s.tenant_id AND h.session_id = s.session_id
    LEFT JOIN runplane.session_events x ON x.tenant_id = s.tenant_id AND x.session_id = s.session_id AND x.sequence = s.ended_sequence
    WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.operation_id = ${operationId}::text`,
  );
}
