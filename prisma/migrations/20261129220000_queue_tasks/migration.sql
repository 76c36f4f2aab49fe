-- Queue tasks: tasks, their attempts, lanes with limits, turns of tenants, read marks. Locks: only what it creates; old code runs on.
-- Written by Prisma from prisma/schema and reviewed; the parts below "By hand" are what Prisma's language cannot say.

-- By hand: a waiting ALTER TABLE stops every writer behind it, and with them the feed's horizon. Better to fail and to be repeated.
SELECT set_config('lock_timeout', '5s', true);

-- CreateEnum
CREATE TYPE "runplane"."queue_task_state" AS ENUM ('pending', 'running', 'completed', 'failed', 'blocked', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."queue_attempt_state" AS ENUM ('reserved', 'pending', 'running', 'completed', 'failed', 'blocked', 'cancelled');

-- CreateTable
CREATE TABLE "runplane"."queue_tasks" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL,
    "queue" TEXT NOT NULL,
    "lane" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "priority" INTEGER NOT NULL DEFAULT 0,
    "state" "runplane"."queue_task_state" NOT NULL DEFAULT 'pending',
    "version" BIGINT NOT NULL DEFAULT 1,
    "changed_tx" BIGINT NOT NULL,
    "backend_profile" TEXT,
    "provider_id" TEXT,
    "workspace_ref" JSONB,
    "session_ref" JSONB,
    "session_id" TEXT,
    "execution_policy" JSONB,
    "resource_bundle_ref" JSONB,
    "payload" JSON NOT NULL,
    "payload_hash" TEXT NOT NULL,
    "hash_version" SMALLINT NOT NULL,
    "task_references" JSONB NOT NULL DEFAULT '[]',
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "idempotency_key" TEXT,
    "run_at" TIMESTAMPTZ(3),
    "ready_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "due" BOOLEAN NOT NULL DEFAULT true,
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "max_attempts" INTEGER NOT NULL DEFAULT 3,
    "places" SMALLINT NOT NULL DEFAULT 0,
    "attempt_id" TEXT,
    "last_retry_index" INTEGER NOT NULL DEFAULT -1,
    "last_error" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "ended_at" TIMESTAMPTZ(3),
    "cancelled_at" TIMESTAMPTZ(3),
    "cancel_reason" TEXT,

    CONSTRAINT "queue_tasks_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."queue_attempts" (
    "tenant_id" TEXT NOT NULL,
    "task_id" TEXT NOT NULL,
    "attempt_id" TEXT NOT NULL,
    "retry_index" INTEGER NOT NULL,
    "state" "runplane"."queue_attempt_state" NOT NULL,
    "idempotency_key" TEXT,
    "reason" TEXT,
    "payload_hash" TEXT NOT NULL,
    "previous_attempt_id" TEXT,
    "run_id" TEXT,
    "command_id" TEXT,
    "runner_job_id" TEXT,
    "session_id" TEXT,
    "owner" TEXT,
    "epoch" INTEGER,
    "expires_at" TIMESTAMPTZ(3),
    "failure_kind" TEXT,
    "failure_message" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "activated_at" TIMESTAMPTZ(3),
    "terminal_at" TIMESTAMPTZ(3),

    CONSTRAINT "queue_attempts_pkey" PRIMARY KEY ("tenant_id","task_id","retry_index")
);

-- CreateTable
CREATE TABLE "runplane"."queue_lanes" (
    "tenant_id" TEXT NOT NULL,
    "queue" TEXT NOT NULL,
    "lane" TEXT NOT NULL,
    "max_running" INTEGER,
    "running" INTEGER NOT NULL DEFAULT 0,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "queue_lanes_pkey" PRIMARY KEY ("tenant_id","queue","lane")
);

-- CreateTable
CREATE TABLE "runplane"."queue_turns" (
    "queue" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "queue_turns_pkey" PRIMARY KEY ("queue")
);

-- CreateTable
CREATE TABLE "runplane"."queue_task_read_cursors" (
    "tenant_id" TEXT NOT NULL,
    "task_id" TEXT NOT NULL,
    "reader_id" TEXT NOT NULL,
    "task_version" BIGINT NOT NULL,
    "read_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "queue_task_read_cursors_pkey" PRIMARY KEY ("tenant_id","task_id","reader_id")
);

-- CreateIndex
CREATE INDEX "queue_tasks_claimable" ON "runplane"."queue_tasks"("queue", "tenant_id", "lane", "priority" DESC, "created_at", "id") WHERE ((state = 'pending'::runplane.queue_task_state) AND due);

-- CreateIndex
CREATE INDEX "queue_tasks_waiting" ON "runplane"."queue_tasks"("ready_at", "tenant_id", "id") WHERE ((state = 'pending'::runplane.queue_task_state) AND (NOT due));

-- CreateIndex
CREATE INDEX "queue_tasks_leases" ON "runplane"."queue_tasks"("expires_at", "tenant_id", "id") WHERE (expires_at IS NOT NULL);

-- By hand: COLLATE "C" on the tenant of the lists' indexes, which the lists spell too. A claim's equality of tenants is in the default collation
-- and cannot take one of them, which would read the backlog.
-- CreateIndex
CREATE INDEX "queue_tasks_tenant_id_queue_state_priority_created_at_id_idx" ON "runplane"."queue_tasks"("tenant_id" COLLATE "C", "queue", "state", "priority" DESC, "created_at", "id");

-- CreateIndex
CREATE INDEX "queue_tasks_tenant_id_changed_tx_id_idx" ON "runplane"."queue_tasks"("tenant_id" COLLATE "C", "changed_tx", "id");

-- CreateIndex
CREATE UNIQUE INDEX "queue_tasks_idempotency_key" ON "runplane"."queue_tasks"("tenant_id", "project_id", "idempotency_key") WHERE (idempotency_key IS NOT NULL);

-- CreateIndex
CREATE INDEX "queue_attempts_running_runs" ON "runplane"."queue_attempts"("tenant_id", "run_id") WHERE ((state = 'running'::runplane.queue_attempt_state) AND (run_id IS NOT NULL));

-- CreateIndex
CREATE INDEX "queue_attempts_reserved" ON "runplane"."queue_attempts"("expires_at", "tenant_id", "task_id") WHERE (state = 'reserved'::runplane.queue_attempt_state);

-- CreateIndex
CREATE UNIQUE INDEX "queue_attempts_active" ON "runplane"."queue_attempts"("tenant_id", "task_id") WHERE (state = ANY (ARRAY['reserved'::runplane.queue_attempt_state, 'pending'::runplane.queue_attempt_state, 'running'::runplane.queue_attempt_state]));

-- CreateIndex
CREATE UNIQUE INDEX "queue_attempts_retry_key" ON "runplane"."queue_attempts"("tenant_id", "task_id", "idempotency_key") WHERE (idempotency_key IS NOT NULL);

-- AddForeignKey
ALTER TABLE "runplane"."queue_task_read_cursors" ADD CONSTRAINT "queue_task_read_cursors_tenant_id_task_id_fkey" FOREIGN KEY ("tenant_id", "task_id") REFERENCES "queue_tasks"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- By hand: words and states that belong together. Few: a CHECK is parsed again by each UPDATE.
ALTER TABLE "runplane"."queue_tasks"
  ADD CONSTRAINT "queue_tasks_end_matches_state" CHECK (("ended_at" IS NOT NULL) = ("state" NOT IN ('pending', 'running'))),
  ADD CONSTRAINT "queue_tasks_holder_is_whole" CHECK (("owner" IS NULL) = ("expires_at" IS NULL) AND ("owner" IS NULL OR "state" = 'running'));

ALTER TABLE "runplane"."queue_attempts"
  ADD CONSTRAINT "queue_attempts_end_matches_state" CHECK (("terminal_at" IS NOT NULL) = ("state" IN ('completed', 'failed', 'blocked', 'cancelled'))),
  ADD CONSTRAINT "queue_attempts_reservation_ends" CHECK (("state" <> 'reserved') OR ("expires_at" IS NOT NULL AND "idempotency_key" IS NOT NULL)),
  ADD CONSTRAINT "queue_attempts_retry_index_not_negative" CHECK ("retry_index" >= 0);

ALTER TABLE "runplane"."queue_lanes"
  ADD CONSTRAINT "queue_lanes_limit_positive" CHECK ("max_running" > 0),
  ADD CONSTRAINT "queue_lanes_running_not_negative" CHECK ("running" >= 0);

-- By hand: a claim and an end leave a dead version of the task each, and dead entries at the very front of the index that claims read: vacuumed
-- by count, and soon. Lanes with a limit and turns are few rows that change with every claim.
ALTER TABLE "runplane"."queue_tasks" SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE "runplane"."queue_attempts" SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE "runplane"."queue_lanes" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE "runplane"."queue_turns" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
