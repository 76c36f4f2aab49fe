import { QUEUE_ATTEMPT_STATES, QUEUE_TASK_STATES } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { bound } from './bound.sql';
import { latestAttempt, type TaskKey } from './task.sql';

/** Tasks before this one in its lane are counted no further. */
export const AHEAD_MAX = 1_000;

const FactsRow = z.object({
  state: column.state(QUEUE_TASK_STATES),
  queue: column.text,
  lane: column.text,
  isDue: column.bool,
  readyInMs: column.int,
  holder: column.text.nullable(),
  leaseInMs: column.int.nullable(),
  epoch: column.int,
  attempts: column.int,
  maxAttempts: column.int,
  lastError: column.text.nullable(),
  cancelReason: column.text.nullable(),
  attemptId: column.text.nullable(),
  attemptState: column.state(QUEUE_ATTEMPT_STATES).nullable(),
  runId: column.text.nullable(),
  runFinished: column.bool,
  reservedAttemptId: column.text.nullable(),
  reservedForMs: column.int.nullable(),
  laneRunning: column.int.nullable(),
  laneMax: column.int.nullable(),
  queueRunning: column.int.nullable(),
  queueMax: column.int.nullable(),
  ahead: column.int,
  isQueueServed: column.bool,
});
/** What a task's explanation is made of, from one snapshot. */
export type ExplainedTask = z.infer<typeof FactsRow>;

export function findExplainedTask(on: SqlExecutor, { tenantId, taskId }: TaskKey): Promise<ExplainedTask | undefined> {
  return maybeRow(
    on,
    FactsRow,
    sql`
    WITH c AS MATERIALIZED (SELECT runplane.app_now() AS now)
    SELECT t.state::text AS "state", t.queue AS "queue", t.lane AS "lane", t.due AS "isDue", runplane.ms_until(t.ready_at, c.now) AS "readyInMs", t.owner AS "holder",
      runplane.ms_until(t.expires_at, c.now) AS "leaseInMs", t.epoch AS "epoch", t.attempts AS "attempts", t.max_attempts AS "maxAttempts",
      t.last_error AS "lastError", t.cancel_reason AS "cancelReason", t.attempt_id AS "attemptId", a.state::text AS "attemptState", a.run_id AS "runId",
      a.run_id IS NOT NULL AND r.finished_at IS NOT NULL AS "runFinished",
      v.attempt_id AS "reservedAttemptId", runplane.ms_until(v.expires_at, c.now) AS "reservedForMs",
      l.running AS "laneRunning", l.max_running AS "laneMax", w.running AS "queueRunning", w.max_running AS "queueMax",
      (SELECT count(*)::int FROM (
        SELECT FROM runplane.queue_tasks x WHERE x.queue = t.queue AND x.tenant_id = t.tenant_id AND x.lane = t.lane AND x.state = 'pending' AND x.due
          AND t.state = 'pending' AND t.due AND (x.priority > t.priority OR (x.priority = t.priority AND (x.created_at, x.id) < (t.created_at, t.id)))
        ORDER BY x.priority DESC, x.created_at, x.id LIMIT ${bound(AHEAD_MAX)}) ahead) AS "ahead",
      coalesce((SELECT true FROM runplane.queue_tasks x WHERE x.tenant_id COLLATE "C" = t.tenant_id AND x.queue = t.queue AND x.state = 'running'
        ORDER BY x.priority DESC, x.created_at, x.id LIMIT 1), false) AS "isQueueServed"
    FROM c, runplane.queue_tasks t
    ${latestAttempt}
    LEFT JOIN runplane.runs r ON r.tenant_id = a.tenant_id AND r.id = a.run_id
    LEFT JOIN runplane.queue_attempts v ON v.tenant_id = t.tenant_id AND v.task_id = t.id AND v.state = 'reserved'
    LEFT JOIN runplane.queue_lanes l ON l.tenant_id = t.tenant_id AND l.queue = t.queue AND l.lane = t.lane
    LEFT JOIN runplane.queue_lanes w ON w.tenant_id = t.tenant_id AND w.queue = t.queue AND w.lane = ''
    WHERE t.tenant_id = ${tenantId}::text AND t.id = ${taskId}::text`,
  );
}
