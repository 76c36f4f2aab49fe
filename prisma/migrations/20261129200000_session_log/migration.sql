-- The session log: heads, events, projections, submissions, approvals and input requests. Locks: what it creates, and SHARE ROW EXCLUSIVE on
-- sessions for its foreign key and for the heads of the sessions that are there, which takes as long as there are sessions; ACCESS EXCLUSIVE on sessions
-- and outbox_events for their new columns, without a rewrite.
-- Written by Prisma from prisma/schema and reviewed; the parts below "By hand" are what Prisma's language cannot say.

-- By hand: a waiting ALTER TABLE stops every writer behind it, and with them the feed's horizon. Better to fail and to be repeated.
SELECT set_config('lock_timeout', '5s', true);

-- CreateEnum
CREATE TYPE "runplane"."driver_state" AS ENUM ('idle', 'turn_started', 'step_preparing', 'model_streaming', 'tool_running', 'approval_waiting', 'input_waiting', 'step_completed', 'turn_completed', 'attention_required');

-- CreateEnum
CREATE TYPE "runplane"."approval_state" AS ENUM ('pending', 'approved', 'rejected', 'expired', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."input_state" AS ENUM ('pending', 'answered', 'declined', 'expired', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."submission_state" AS ENUM ('pending', 'completed', 'failed');

-- CreateEnum
CREATE TYPE "runplane"."submission_head_state" AS ENUM ('waiting', 'claimed');

-- CreateEnum
CREATE TYPE "runplane"."delivery_state" AS ENUM ('queued', 'succeeded', 'failed');

-- CreateEnum
CREATE TYPE "runplane"."rebuild_state" AS ENUM ('waiting', 'running', 'completed');

-- AlterTable
ALTER TABLE "runplane"."sessions" ADD COLUMN     "copying" BOOLEAN NOT NULL DEFAULT false,
ADD COLUMN     "deleted_at" TIMESTAMPTZ(3),
ALTER COLUMN "project_id" DROP NOT NULL,
ALTER COLUMN "backend_profile" DROP NOT NULL;

-- AlterTable
ALTER TABLE "runplane"."outbox_events" ADD COLUMN "events" SMALLINT NOT NULL DEFAULT 1,
ALTER COLUMN "data" DROP NOT NULL;

-- By hand: a row may stand for a batch of up to so many events, each with a place of its own.
ALTER TABLE "runplane"."outbox_events" ALTER COLUMN "position" SET INCREMENT BY 512;

-- CreateTable
CREATE TABLE "runplane"."session_heads" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "header" JSON NOT NULL,
    "incarnation" TEXT NOT NULL,
    "imported_through" BIGINT NOT NULL DEFAULT -1,
    "copying" BOOLEAN NOT NULL DEFAULT false,
    "last_sequence" BIGINT NOT NULL DEFAULT -1,
    "last_tx" BIGINT NOT NULL DEFAULT 0,
    "event_tx" BIGINT NOT NULL DEFAULT 0,
    "event_position" BIGINT NOT NULL DEFAULT 0,
    "project_id" TEXT,
    "partition_key" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "lease_owner" TEXT,
    "lease_epoch" INTEGER NOT NULL DEFAULT 0,
    "lease_expires_at" TIMESTAMPTZ(3),
    "driver_state" "runplane"."driver_state" NOT NULL DEFAULT 'idle',
    "snapshot" JSON,
    "needs_recovery" BOOLEAN NOT NULL DEFAULT false,
    "window_id" TEXT,
    "first_window_id" TEXT,
    "open_submissions" INTEGER NOT NULL DEFAULT 0,
    "open_turn_submissions" INTEGER NOT NULL DEFAULT 0,
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "views_version" INTEGER NOT NULL,
    "views_epoch" INTEGER NOT NULL DEFAULT 0,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "deleted_at" TIMESTAMPTZ(3),

    CONSTRAINT "session_heads_pkey" PRIMARY KEY ("tenant_id","session_id")
);

-- CreateTable
CREATE TABLE "runplane"."session_events" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "event_id" UUID NOT NULL,
    "type" TEXT NOT NULL,
    "time" TIMESTAMPTZ(3) NOT NULL,
    "turn_id" TEXT,
    "step_id" TEXT,
    "data" JSON NOT NULL,
    "line" TEXT,
    "run_id" TEXT,
    "command_id" TEXT,
    "append_id" TEXT,
    "append_count" INTEGER,
    "tx" BIGINT,
    "position" BIGINT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "session_events_pkey" PRIMARY KEY ("tenant_id","session_id","sequence")
);

-- CreateTable
CREATE TABLE "runplane"."submissions" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "operation_id" TEXT NOT NULL,
    "submission_id" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "state" "runplane"."submission_state" NOT NULL DEFAULT 'pending',
    "payload" JSON NOT NULL,
    "source" JSON NOT NULL,
    "content_hash" TEXT NOT NULL,
    "hash_version" SMALLINT NOT NULL,
    "expected_revision" BIGINT,
    "accepted_sequence" BIGINT NOT NULL,
    "place" BIGINT NOT NULL,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "last_error" TEXT,
    "from_event" BOOLEAN NOT NULL DEFAULT true,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "ended_at" TIMESTAMPTZ(3),
    "ended_sequence" BIGINT,

    CONSTRAINT "submissions_pkey" PRIMARY KEY ("tenant_id","session_id","operation_id")
);

-- CreateTable
CREATE TABLE "runplane"."submission_heads" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "operation_id" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "place" BIGINT NOT NULL,
    "state" "runplane"."submission_head_state" NOT NULL DEFAULT 'waiting',
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "ready_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "last_error" TEXT,

    CONSTRAINT "submission_heads_pkey" PRIMARY KEY ("tenant_id","session_id")
);

-- CreateTable
CREATE TABLE "runplane"."session_tombstones" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "incarnation" TEXT NOT NULL,
    "last_sequence" BIGINT NOT NULL,
    "copied_through" BIGINT NOT NULL,
    "last_tx" BIGINT NOT NULL,
    "lease_epoch" INTEGER NOT NULL,
    "claim_epoch" INTEGER NOT NULL,
    "deleted_at" TIMESTAMPTZ(3) NOT NULL,
    "erased_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "session_tombstones_pkey" PRIMARY KEY ("tenant_id","session_id","incarnation")
);

-- CreateTable
CREATE TABLE "runplane"."approvals" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "approval_id" TEXT NOT NULL,
    "state" "runplane"."approval_state" NOT NULL DEFAULT 'pending',
    "revision" INTEGER NOT NULL DEFAULT 0,
    "turn_id" TEXT NOT NULL DEFAULT '',
    "step_id" TEXT NOT NULL DEFAULT '',
    "tool_call_id" TEXT NOT NULL DEFAULT '',
    "operation_id" TEXT NOT NULL DEFAULT '',
    "tool_name" TEXT NOT NULL DEFAULT '',
    "arguments_summary" JSON NOT NULL,
    "arguments_digest" TEXT,
    "reason" TEXT NOT NULL DEFAULT '',
    "content_hash" TEXT NOT NULL,
    "run_id" TEXT,
    "command_id" TEXT,
    "actor" JSON,
    "resolution_reason" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL,
    "expires_at" TIMESTAMPTZ(3) NOT NULL,
    "resolved_at" TIMESTAMPTZ(3),
    "requested_sequence" BIGINT NOT NULL,
    "resolved_sequence" BIGINT,

    CONSTRAINT "approvals_pkey" PRIMARY KEY ("tenant_id","session_id","approval_id")
);

-- CreateTable
CREATE TABLE "runplane"."input_requests" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "request_id" TEXT NOT NULL,
    "state" "runplane"."input_state" NOT NULL DEFAULT 'pending',
    "revision" INTEGER NOT NULL DEFAULT 0,
    "turn_id" TEXT NOT NULL DEFAULT '',
    "prompt" TEXT NOT NULL DEFAULT '',
    "input_schema" JSON NOT NULL,
    "content_hash" TEXT NOT NULL,
    "run_id" TEXT,
    "command_id" TEXT,
    "value" JSON,
    "actor" JSON,
    "resolution_reason" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL,
    "expires_at" TIMESTAMPTZ(3) NOT NULL,
    "resolved_at" TIMESTAMPTZ(3),
    "requested_sequence" BIGINT NOT NULL,
    "resolved_sequence" BIGINT,

    CONSTRAINT "input_requests_pkey" PRIMARY KEY ("tenant_id","session_id","request_id")
);

-- CreateTable
CREATE TABLE "runplane"."session_views" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "key" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "sequence" BIGINT NOT NULL,
    "applied_sequence" BIGINT NOT NULL,
    "stale_reason" TEXT,
    "value" JSON NOT NULL,

    CONSTRAINT "session_views_pkey" PRIMARY KEY ("tenant_id","session_id","key")
);

-- CreateTable
CREATE TABLE "runplane"."channel_bindings" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "address" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "data" JSON NOT NULL,

    CONSTRAINT "channel_bindings_pkey" PRIMARY KEY ("tenant_id","session_id","address")
);

-- CreateTable
CREATE TABLE "runplane"."channel_inbounds" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "address" TEXT NOT NULL,
    "message_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "data" JSON NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "channel_inbounds_pkey" PRIMARY KEY ("tenant_id","session_id","address","message_id")
);

-- CreateTable
CREATE TABLE "runplane"."channel_routes" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "turn_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "source" JSON NOT NULL,
    "ended_at" TIMESTAMPTZ(3),

    CONSTRAINT "channel_routes_pkey" PRIMARY KEY ("tenant_id","session_id","turn_id")
);

-- CreateTable
CREATE TABLE "runplane"."channel_deliveries" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "delivery_id" TEXT NOT NULL,
    "state" "runplane"."delivery_state" NOT NULL,
    "data" JSON,
    "error" TEXT,
    "queued_sequence" BIGINT,
    "completed_sequence" BIGINT,
    "updated_at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "channel_deliveries_pkey" PRIMARY KEY ("tenant_id","session_id","delivery_id")
);

-- CreateTable
CREATE TABLE "runplane"."context_windows" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "window_id" TEXT NOT NULL,
    "previous_window_id" TEXT,
    "started_sequence" BIGINT NOT NULL,
    "event_sequence" BIGINT NOT NULL,
    "trigger" TEXT NOT NULL,

    CONSTRAINT "context_windows_pkey" PRIMARY KEY ("tenant_id","session_id","window_id")
);

-- CreateTable
CREATE TABLE "runplane"."context_notes" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "path" TEXT NOT NULL,
    "content" TEXT NOT NULL,
    "updated_sequence" BIGINT NOT NULL,

    CONSTRAINT "context_notes_pkey" PRIMARY KEY ("tenant_id","session_id","path")
);

-- CreateTable
CREATE TABLE "runplane"."context_history" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "window_id" TEXT NOT NULL,
    "role" TEXT NOT NULL,
    "tool_name" TEXT,
    "content" TEXT NOT NULL,

    CONSTRAINT "context_history_pkey" PRIMARY KEY ("tenant_id","session_id","sequence")
);

-- CreateTable
CREATE TABLE "runplane"."session_rebuilds" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "state" "runplane"."rebuild_state" NOT NULL DEFAULT 'waiting',
    "rules" TEXT NOT NULL DEFAULT '',
    "through_sequence" BIGINT NOT NULL DEFAULT -1,
    "folded" JSON,
    "switched_at" TIMESTAMPTZ(3),
    "changed_rows" INTEGER NOT NULL DEFAULT 0,
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "ready_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "last_error" TEXT,
    "requested_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "finished_at" TIMESTAMPTZ(3),

    CONSTRAINT "session_rebuilds_pkey" PRIMARY KEY ("tenant_id","session_id")
);

-- CreateIndex
CREATE INDEX "session_heads_recovery" ON "runplane"."session_heads"("tenant_id", "session_id") WHERE (needs_recovery);

-- CreateIndex
CREATE INDEX "session_heads_views_version_tenant_id_session_id_idx" ON "runplane"."session_heads"("views_version", "tenant_id", "session_id");

-- CreateIndex
CREATE INDEX "session_heads_deleted" ON "runplane"."session_heads"("deleted_at", "tenant_id", "session_id") WHERE (deleted_at IS NOT NULL);

-- CreateIndex
CREATE UNIQUE INDEX "session_events_append" ON "runplane"."session_events"("tenant_id", "session_id", "append_id") WHERE (append_id IS NOT NULL);

-- By hand: the collations of the next four. Planned for any session, each index that begins with tenant and session looks as good as another one, and by
-- the wrong one a statement reads all that a session ever had. So the primary key alone is in the words of everybody, and these in words of their own:
-- COLLATE "C" for what is unfinished and for submission ids, "POSIX", which is the same order under another name, for places.
-- CreateIndex
CREATE INDEX "submissions_unfinished" ON "runplane"."submissions"("tenant_id" COLLATE "C", "session_id" COLLATE "C", "place") WHERE (state = 'pending'::runplane.submission_state);

-- CreateIndex
CREATE INDEX "submissions_unfinished_by_time" ON "runplane"."submissions"("tenant_id", "created_at", "session_id", "operation_id") WHERE (state = 'pending'::runplane.submission_state);

-- CreateIndex
CREATE UNIQUE INDEX "submissions_submission_id" ON "runplane"."submissions"("submission_id", "tenant_id" COLLATE "C", "session_id" COLLATE "C");

-- CreateIndex
CREATE UNIQUE INDEX "submissions_place" ON "runplane"."submissions"("tenant_id" COLLATE "POSIX", "session_id" COLLATE "POSIX", "place");

-- CreateIndex
CREATE INDEX "submission_heads_of_tenant" ON "runplane"."submission_heads"("tenant_id", "ready_at", "session_id") WHERE (attempts < 10);

-- By hand: COLLATE "C", which a claim of a tenant's kind spells too. By the index of the tenant, or of the kind, it would read the whole backlog of
-- other kinds, or of other tenants, where there is nothing for it.
-- CreateIndex
CREATE INDEX "submission_heads_of_tenant_kind" ON "runplane"."submission_heads"("tenant_id" COLLATE "C", "kind" COLLATE "C", "ready_at", "session_id") WHERE (attempts < 10);

-- CreateIndex
CREATE INDEX "submission_heads_of_kind" ON "runplane"."submission_heads"("kind", "ready_at", "tenant_id", "session_id") WHERE (attempts < 10);

-- CreateIndex
CREATE INDEX "submission_heads_exhausted" ON "runplane"."submission_heads"("ready_at", "tenant_id", "session_id") WHERE (attempts >= 10);

-- CreateIndex
CREATE INDEX "approvals_pending" ON "runplane"."approvals"("tenant_id", "created_at", "session_id", "approval_id") WHERE (state = 'pending'::runplane.approval_state);

-- CreateIndex
CREATE INDEX "approvals_due" ON "runplane"."approvals"("expires_at", "tenant_id", "session_id", "approval_id") WHERE (state = 'pending'::runplane.approval_state);

-- CreateIndex
CREATE INDEX "approvals_pending_of_session" ON "runplane"."approvals"("tenant_id", "session_id", "created_at", "approval_id") WHERE (state = 'pending'::runplane.approval_state);

-- CreateIndex
CREATE INDEX "input_requests_pending" ON "runplane"."input_requests"("tenant_id", "created_at", "session_id", "request_id") WHERE (state = 'pending'::runplane.input_state);

-- CreateIndex
CREATE INDEX "input_requests_due" ON "runplane"."input_requests"("expires_at", "tenant_id", "session_id", "request_id") WHERE (state = 'pending'::runplane.input_state);

-- CreateIndex
CREATE INDEX "input_requests_pending_of_session" ON "runplane"."input_requests"("tenant_id", "session_id", "created_at", "request_id") WHERE (state = 'pending'::runplane.input_state);

-- CreateIndex
CREATE INDEX "session_views_tenant_id_key_session_id_idx" ON "runplane"."session_views"("tenant_id", "key", "session_id");

-- CreateIndex
CREATE INDEX "channel_inbounds_created_at_tenant_id_session_id_idx" ON "runplane"."channel_inbounds"("created_at", "tenant_id", "session_id");

-- CreateIndex
CREATE INDEX "channel_routes_ended" ON "runplane"."channel_routes"("ended_at", "tenant_id", "session_id") WHERE (ended_at IS NOT NULL);

-- CreateIndex
CREATE INDEX "channel_deliveries_ended" ON "runplane"."channel_deliveries"("updated_at", "tenant_id", "session_id") WHERE (state <> 'queued'::runplane.delivery_state);

-- CreateIndex
CREATE INDEX "context_windows_tenant_id_session_id_started_sequence_event_idx" ON "runplane"."context_windows"("tenant_id", "session_id", "started_sequence" DESC, "event_sequence" DESC);

-- CreateIndex
CREATE INDEX "context_history_tenant_id_session_id_window_id_sequence_idx" ON "runplane"."context_history"("tenant_id", "session_id", "window_id", "sequence");

-- CreateIndex
CREATE INDEX "session_rebuilds_due" ON "runplane"."session_rebuilds"("ready_at", "tenant_id", "session_id") WHERE (state = ANY (ARRAY['waiting'::runplane.rebuild_state, 'running'::runplane.rebuild_state]));

-- CreateIndex
CREATE INDEX "session_rebuilds_finished" ON "runplane"."session_rebuilds"("finished_at", "tenant_id", "session_id") WHERE (state = 'completed'::runplane.rebuild_state);

-- CreateIndex
CREATE INDEX "session_read_cursors_tenant_id_reader_id_idx" ON "runplane"."session_read_cursors"("tenant_id", "reader_id");

-- CreateIndex
CREATE INDEX "session_readers_tenant_id_read_at_reader_id_idx" ON "runplane"."session_readers"("tenant_id", "read_at", "reader_id");

-- AddForeignKey
ALTER TABLE "runplane"."session_heads" ADD CONSTRAINT "session_heads_tenant_id_session_id_fkey" FOREIGN KEY ("tenant_id", "session_id") REFERENCES "runplane"."sessions"("tenant_id", "session_id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- By hand: words and states that belong together. The head of a log is written by every append and has none: a CHECK is parsed again by each UPDATE.
ALTER TABLE "runplane"."session_events"
  ADD CONSTRAINT "session_events_sequence_from_zero" CHECK ("sequence" >= 0),
  ADD CONSTRAINT "session_events_append_is_whole" CHECK (("append_id" IS NULL) = ("append_count" IS NULL));
ALTER TABLE "runplane"."submissions"
  ADD CONSTRAINT "submissions_end_matches_state" CHECK (("ended_at" IS NOT NULL) = ("state" <> 'pending'));
ALTER TABLE "runplane"."submission_heads"
  ADD CONSTRAINT "submission_heads_holder_matches_state" CHECK (("owner" IS NOT NULL) = ("state" = 'claimed') AND ("expires_at" IS NOT NULL) = ("state" = 'claimed'));
ALTER TABLE "runplane"."approvals"
  ADD CONSTRAINT "approvals_end_matches_state" CHECK (("resolved_at" IS NOT NULL) = ("state" <> 'pending') AND ("resolved_sequence" IS NOT NULL) = ("state" <> 'pending'));
ALTER TABLE "runplane"."input_requests"
  ADD CONSTRAINT "input_requests_end_matches_state" CHECK (("resolved_at" IS NOT NULL) = ("state" <> 'pending') AND ("resolved_sequence" IS NOT NULL) = ("state" <> 'pending'));
ALTER TABLE "runplane"."session_rebuilds"
  ADD CONSTRAINT "session_rebuilds_holder_matches_state" CHECK (("owner" IS NOT NULL) = ("state" = 'running') AND ("expires_at" IS NOT NULL) = ("state" = 'running')),
  ADD CONSTRAINT "session_rebuilds_end_matches_state" CHECK (("finished_at" IS NOT NULL) = ("state" = 'completed'));

-- By hand: the list of headers. By an expression, since on a table without statistics an index of tenant and session looks as good as the primary
-- key to whoever locks one head, and every head of the tenant would be read.
CREATE INDEX "session_heads_newest" ON "runplane"."session_heads" (("tenant_id" || ''), "created_at" DESC, "session_id");

-- By hand: every append rewrites the head, and no index but the primary key names what it changes.
ALTER TABLE "runplane"."session_heads" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
ALTER TABLE "runplane"."session_views" SET (fillfactor = 70);
ALTER TABLE "runplane"."submission_heads" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- By hand: sessions from before the log get an empty one, as admission gives every new session.
-- The version is that of the views of the code that comes with it: there is nothing in them to be rebuilt.
INSERT INTO "runplane"."session_heads" (tenant_id, session_id, header, incarnation, project_id, partition_key, shard, last_tx, views_version, created_at, updated_at)
SELECT tenant_id, session_id, json_build_object('id', session_id, 'projectId', project_id, 'backendProfile', backend_profile),
  replace(gen_random_uuid()::text, '-', ''), project_id, partition_key, shard, last_tx, 8, created_at, created_at
FROM "runplane"."sessions";

-- By hand: whoever has marked a session read has a row as a reader, by which retention finds its marks.
INSERT INTO "runplane"."session_readers" AS r (tenant_id, reader_id, read_tx, read_at)
SELECT tenant_id, reader_id, -1, max(read_at) FROM "runplane"."session_read_cursors" GROUP BY tenant_id, reader_id
ON CONFLICT (tenant_id, reader_id) DO UPDATE SET read_at = greatest(r.read_at, excluded.read_at);
