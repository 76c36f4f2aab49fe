-- The attempt of a claim stands in its task: a task that is claimed and completed once has no row of its attempt besides. Locks queue_tasks for a
-- moment: the columns have no default and need no rewrite. Queue processes of the version before end such claims without their attempt: stop them first.

-- By hand: a waiting ALTER TABLE stops every writer behind it, and with them the feed's horizon. Better to fail and to be repeated.
SELECT set_config('lock_timeout', '5s', true);

-- AlterTable
ALTER TABLE "runplane"."queue_tasks" ADD COLUMN "attempt_since" TIMESTAMPTZ(3), ADD COLUMN "attempt_owner" TEXT;

-- By hand: the attempts that stand in their tasks, and all of them, as readers see them.
CREATE VIEW "runplane"."queue_attempts_in_tasks" AS
  SELECT t.tenant_id, t.id AS task_id, t.attempt_id, t.last_retry_index AS retry_index, t.state::text::runplane.queue_attempt_state AS state,
    NULL::text AS idempotency_key, NULL::text AS reason, t.payload_hash,
    (SELECT p.attempt_id FROM runplane.queue_attempts p WHERE p.tenant_id = t.tenant_id AND p.task_id = t.id AND p.retry_index = t.last_retry_index - 1)
      AS previous_attempt_id,
    NULL::text AS run_id, NULL::text AS command_id, NULL::text AS runner_job_id, t.session_id, coalesce(t.owner, t.attempt_owner) AS owner, t.epoch,
    NULL::timestamptz(3) AS expires_at, NULL::text AS failure_kind, NULL::text AS failure_message, t.attempt_since AS created_at,
    coalesce(t.ended_at, t.attempt_since) AS updated_at, t.attempt_since AS activated_at, t.ended_at AS terminal_at
  FROM runplane.queue_tasks t
  WHERE t.attempt_since IS NOT NULL;

CREATE VIEW "runplane"."queue_attempts_all" AS
  SELECT a.tenant_id, a.task_id, a.attempt_id, a.retry_index, a.state, a.idempotency_key, a.reason, a.payload_hash, a.previous_attempt_id, a.run_id,
    a.command_id, a.runner_job_id, a.session_id, a.owner, a.epoch, a.expires_at, a.failure_kind, a.failure_message, a.created_at, a.updated_at,
    a.activated_at, a.terminal_at
  FROM runplane.queue_attempts a
  UNION ALL
  SELECT * FROM runplane.queue_attempts_in_tasks;
