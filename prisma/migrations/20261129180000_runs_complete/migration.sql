-- By hand: a waiting ALTER TABLE stops every writer behind it, and with them the feed's horizon. Better to fail and to be repeated.
SELECT set_config('lock_timeout', '5s', true);

-- CreateEnum
CREATE TYPE "runplane"."reservation_kind" AS ENUM ('runner-create', 'retention');

-- CreateEnum
CREATE TYPE "runplane"."storage_kind" AS ENUM ('none', 'pvc', 'folder', 'evicted');

-- AlterTable
ALTER TABLE "runplane"."runner_jobs" ADD COLUMN     "attempt_id" TEXT,
ADD COLUMN     "hash_version" SMALLINT,
ADD COLUMN     "idempotency_key" TEXT,
ADD COLUMN     "image" TEXT,
ADD COLUMN     "last_checked_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),
ADD COLUMN     "manager_url" TEXT,
ADD COLUMN     "namespace" TEXT,
ADD COLUMN     "payload_hash" TEXT,
ADD COLUMN     "runner_id" TEXT,
ADD COLUMN     "service_account_name" TEXT,
ADD COLUMN     "settled_at" TIMESTAMPTZ(3),
ADD COLUMN     "source_commit" TEXT,
ALTER COLUMN "intent_id" DROP NOT NULL;

-- AlterTable
ALTER TABLE "runplane"."runs" ADD COLUMN     "cancel_failure_kind" TEXT,
ADD COLUMN     "duration_deadline_at" TIMESTAMPTZ(3),
ADD COLUMN     "events_pruned_at" TIMESTAMPTZ(3),
ADD COLUMN     "launched_at" TIMESTAMPTZ(3),
ADD COLUMN     "events_pruned_through" BIGINT,
ADD COLUMN     "max_duration_ms" INTEGER,
ADD COLUMN     "open_tool_calls" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "started_at" TIMESTAMPTZ(3),
ADD COLUMN     "workspace_path" TEXT;

-- AlterTable
ALTER TABLE "runplane"."sessions" ADD COLUMN     "changed_tx" BIGINT NOT NULL DEFAULT 0,
ADD COLUMN     "rollout_subdir" TEXT NOT NULL DEFAULT 'sessions',
ADD COLUMN     "storage_attempts" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "storage_evicted_at" TIMESTAMPTZ(3),
ADD COLUMN     "storage_files_count" INTEGER,
ADD COLUMN     "storage_kind" "runplane"."storage_kind" NOT NULL DEFAULT 'none',
ADD COLUMN     "storage_last_error" TEXT,
ADD COLUMN     "storage_lease_epoch" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "storage_lease_expires_at" TIMESTAMPTZ(3),
ADD COLUMN     "storage_lease_owner" TEXT,
ADD COLUMN     "storage_namespace" TEXT,
ADD COLUMN     "storage_pvc_name" TEXT,
ADD COLUMN     "storage_pvc_phase" TEXT,
ADD COLUMN     "storage_ready_at" TIMESTAMPTZ(3),
ADD COLUMN     "storage_sha256" TEXT,
ADD COLUMN     "storage_size_bytes" BIGINT,
ADD COLUMN     "storage_updated_at" TIMESTAMPTZ(3),
ADD COLUMN     "storage_version" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "summary" JSONB NOT NULL DEFAULT '{}',
ALTER COLUMN "last_activity_at" SET DEFAULT "runplane"."app_now"();

-- CreateTable
CREATE TABLE "runplane"."run_search" (
    "tenant_id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "text" TEXT NOT NULL,

    CONSTRAINT "run_search_pkey" PRIMARY KEY ("tenant_id","run_id")
);

-- CreateTable
CREATE TABLE "runplane"."run_status_counts" (
    "id" BIGINT GENERATED ALWAYS AS IDENTITY,
    "tenant_id" TEXT NOT NULL,
    "status" "runplane"."run_state" NOT NULL,
    "n" BIGINT NOT NULL,

    CONSTRAINT "run_status_counts_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."run_tombstones" (
    "tenant_id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "session_id" TEXT,
    "last_event_seq" BIGINT NOT NULL,
    "archive_key" TEXT,
    "archive_sha256" TEXT,
    "finished_at" TIMESTAMPTZ(3) NOT NULL,
    "deleted_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),

    CONSTRAINT "run_tombstones_pkey" PRIMARY KEY ("tenant_id","run_id")
);

-- CreateTable
CREATE TABLE "runplane"."reservations" (
    "kind" "runplane"."reservation_kind" NOT NULL,
    "key" TEXT NOT NULL,
    "slot" INTEGER NOT NULL,
    "tenant_id" TEXT,
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "data" JSONB NOT NULL DEFAULT '{}',
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),

    CONSTRAINT "reservations_pkey" PRIMARY KEY ("kind","key","slot")
);

-- CreateTable
CREATE TABLE "runplane"."backends" (
    "profile" TEXT NOT NULL,
    "capabilities" JSONB NOT NULL DEFAULT '{}',
    "capacity" JSONB NOT NULL DEFAULT '{}',
    "health" JSONB NOT NULL DEFAULT '{}',
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),

    CONSTRAINT "backends_pkey" PRIMARY KEY ("profile")
);

-- CreateTable
CREATE TABLE "runplane"."session_read_cursors" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "reader_id" TEXT NOT NULL,
    "session_version" BIGINT NOT NULL,
    "read_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),

    CONSTRAINT "session_read_cursors_pkey" PRIMARY KEY ("tenant_id","session_id","reader_id")
);

-- CreateTable
CREATE TABLE "runplane"."session_readers" (
    "tenant_id" TEXT NOT NULL,
    "reader_id" TEXT NOT NULL,
    "read_tx" BIGINT NOT NULL,
    "read_at" TIMESTAMPTZ(3) NOT NULL DEFAULT "runplane"."app_now"(),

    CONSTRAINT "session_readers_pkey" PRIMARY KEY ("tenant_id","reader_id")
);

-- CreateIndex
CREATE INDEX "reservations_expires_at_idx" ON "runplane"."reservations"("expires_at") WHERE (owner IS NOT NULL);

-- CreateIndex
CREATE INDEX "cancel_requests_tenant_id_created_at_id_idx" ON "runplane"."cancel_requests"("tenant_id", "created_at", "id");

-- CreateIndex
CREATE INDEX "cancel_requests_tenant_id_session_id_created_at_id_idx" ON "runplane"."cancel_requests"("tenant_id", "session_id", "created_at", "id") WHERE (session_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "dispatch_intents_tenant_id_finished_at_id_idx" ON "runplane"."dispatch_intents"("tenant_id", "finished_at", "id") WHERE (finished_at IS NOT NULL);

-- CreateIndex
CREATE INDEX "runner_jobs_unsettled" ON "runplane"."runner_jobs"("launcher", "last_checked_at", "id") WHERE (settled_at IS NULL);

-- CreateIndex
CREATE UNIQUE INDEX "runner_jobs_run_idempotency_key" ON "runplane"."runner_jobs"("tenant_id", "run_id", "idempotency_key") WHERE (idempotency_key IS NOT NULL);

-- CreateIndex
CREATE INDEX "runners_tenant_id_heartbeat_at_id_idx" ON "runplane"."runners"("tenant_id", "heartbeat_at", "id");

-- By hand: the lists' indexes of runs and sessions have COLLATE "C" on the tenant, and the lists spell it, as in the first migration.
-- CreateIndex
CREATE INDEX "runs_tenant_id_status_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "status", "updated_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "runs_tenant_id_project_id_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "project_id", "updated_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "runs_tenant_id_backend_profile_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "backend_profile", "updated_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "runs_tenant_id_provider_id_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "provider_id", "updated_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "runs_tenant_id_workspace_path_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "workspace_path", "updated_at" DESC, "id" DESC) WHERE (workspace_path IS NOT NULL);

-- CreateIndex
CREATE INDEX "runs_tenant_id_session_id_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "session_id", "updated_at" DESC, "id" DESC) WHERE (session_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "runs_tenant_id_finished_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "finished_at", "id") WHERE (finished_at IS NOT NULL);

-- CreateIndex
CREATE INDEX "runs_unpruned_events" ON "runplane"."runs"("tenant_id" COLLATE "C", "finished_at", "id") WHERE ((finished_at IS NOT NULL) AND (events_pruned_at IS NULL));

-- CreateIndex
CREATE INDEX "runs_events_to_remove" ON "runplane"."runs"("tenant_id" COLLATE "C", "id") WHERE (events_pruned_through IS NOT NULL);

-- CreateIndex
CREATE INDEX "runs_duration_deadline_at_id_idx" ON "runplane"."runs"("duration_deadline_at", "id") WHERE ((duration_deadline_at IS NOT NULL) AND (finished_at IS NULL));

-- CreateIndex
CREATE INDEX "run_leases_tenant_id_runner_id_idx" ON "runplane"."run_leases"("tenant_id", "runner_id");

-- CreateIndex
CREATE INDEX "runs_live_by_profile" ON "runplane"."runs"("backend_profile", "tenant_id") WHERE (((status = 'pending'::runplane.run_state) AND (launched_at IS NOT NULL)) OR (status = ANY (ARRAY['claimed'::runplane.run_state, 'cancelling'::runplane.run_state])));

-- CreateIndex
CREATE INDEX "sessions_tenant_id_last_activity_at_session_id_idx" ON "runplane"."sessions"("tenant_id" COLLATE "C", "last_activity_at" DESC, "session_id" DESC);

-- CreateIndex
CREATE INDEX "sessions_tenant_id_execution_state_last_activity_at_session_idx" ON "runplane"."sessions"("tenant_id" COLLATE "C", "execution_state", "last_activity_at" DESC, "session_id" DESC);

-- CreateIndex
CREATE INDEX "sessions_tenant_id_changed_tx_session_id_idx" ON "runplane"."sessions"("tenant_id" COLLATE "C", "changed_tx", "session_id");

-- CreateIndex
CREATE INDEX "sessions_storage_expiry" ON "runplane"."sessions"("expires_at", "session_id") WHERE ((expires_at IS NOT NULL) AND (storage_kind = ANY (ARRAY['pvc'::runplane.storage_kind, 'folder'::runplane.storage_kind])));

-- By hand: COLLATE "C" on the name, so that what lies below a folder is a range.
-- CreateIndex
CREATE INDEX "sessions_storage_name" ON "runplane"."sessions"("tenant_id", "storage_pvc_name" COLLATE "C") WHERE (storage_kind = ANY (ARRAY['pvc'::runplane.storage_kind, 'folder'::runplane.storage_kind]));

-- AddForeignKey
ALTER TABLE "runplane"."run_search" ADD CONSTRAINT "run_search_tenant_id_run_id_fkey" FOREIGN KEY ("tenant_id", "run_id") REFERENCES "runplane"."runs"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."session_read_cursors" ADD CONSTRAINT "session_read_cursors_tenant_id_session_id_fkey" FOREIGN KEY ("tenant_id", "session_id") REFERENCES "runplane"."sessions"("tenant_id", "session_id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."session_readers" ADD CONSTRAINT "session_readers_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "runplane"."tenants"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- By hand: what stands in the new columns of rows that are there already.
UPDATE "runplane"."sessions" SET "last_activity_at" = "updated_at" WHERE "last_activity_at" IS NULL;
ALTER TABLE "runplane"."sessions" ALTER COLUMN "last_activity_at" SET NOT NULL;
UPDATE "runplane"."sessions" SET "changed_tx" = "last_tx";
UPDATE "runplane"."runs" SET "workspace_path" = "workspace_ref" ->> 'path'
WHERE jsonb_typeof("workspace_ref" -> 'path') = 'string' AND octet_length("workspace_ref" ->> 'path') <= 1024; -- an index entry has room for it
INSERT INTO "runplane"."run_search" ("tenant_id", "run_id", "text")
SELECT "tenant_id", "id", lower(concat_ws(E'\n', "id", "project_id", "workspace_ref" ->> 'path', "backend_profile", "provider_id", "session_id",
  "session_ref" -> 'metadata' ->> 'title', "trace_sink" ->> 'taskId', "trace_sink" ->> 'lane', "failure_kind", "failure_message")) FROM "runplane"."runs";
INSERT INTO "runplane"."run_status_counts" ("tenant_id", "status", "n") SELECT "tenant_id", "status", count(*) FROM "runplane"."runs" GROUP BY 1, 2;

-- By hand: no time has no distance. `least` and `greatest` pass over NULL, so a deadline that is not set read as one in 24 days.
CREATE OR REPLACE FUNCTION "runplane"."ms_until"(timestamptz, now timestamptz) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN $1 IS NOT NULL AND now IS NOT NULL
    THEN greatest(least(ceil(extract(epoch FROM $1 - now) * 1000), 2147483647), -2147483648)::integer END
$$;

UPDATE "runplane"."runs" r SET "open_tool_calls" = (SELECT count(*) FROM "runplane"."run_events" e
  WHERE e."tenant_id" = r."tenant_id" AND e."run_id" = r."id" AND e."tool_call_id" IS NOT NULL AND e."type" = 'tool_call') WHERE r."finished_at" IS NULL;

-- By hand: the counts of runs by state. Each change adds a row; a counter that is updated in place would make all runs of a tenant wait for
-- each other. Appends do not write the state and do not come here.
CREATE FUNCTION "runplane"."count_run"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO runplane.run_status_counts (tenant_id, status, n) VALUES (OLD.tenant_id, OLD.status, -1);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO runplane.run_status_counts (tenant_id, status, n) VALUES (NEW.tenant_id, NEW.status, 1);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER "runs_counts_rows" AFTER INSERT OR DELETE ON "runplane"."runs" FOR EACH ROW EXECUTE FUNCTION "runplane"."count_run"();
CREATE TRIGGER "runs_counts_states" AFTER UPDATE OF "status" ON "runplane"."runs" FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
  EXECUTE FUNCTION "runplane"."count_run"();

-- By hand: a trigram index for the search of runs, where the extension can be had; without it a search reads the tenant's texts. An expression,
-- so that Prisma, which cannot spell it, sees no difference.
DO $$
BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA runplane;
  EXECUTE format('CREATE INDEX run_search_trigrams ON runplane.run_search USING gin ((text || '''') %I.gin_trgm_ops)',
    (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm'));
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported THEN
  RAISE NOTICE 'pg_trgm is not available: the search of runs works without an index';
END
$$;

-- By hand: rules that hold whoever writes. The function of the rules of runs grows; see the first migration for why they stand in it.
CREATE OR REPLACE FUNCTION "runplane"."check_run"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text := CASE
    WHEN octet_length(NEW.id) NOT BETWEEN 1 AND 200 THEN 'runs_id_is_short'
    WHEN (NEW.finished_at IS NOT NULL) <> (NEW.status IN ('completed', 'failed', 'blocked', 'cancelled')) THEN 'runs_finished_at_matches_status'
    WHEN (NEW.claimed_by IS NOT NULL) <> (NEW.status IN ('claimed', 'cancelling')) THEN 'runs_holder_matches_status'
    WHEN (NEW.failure_kind IS NOT NULL) <> (NEW.status IN ('failed', 'blocked', 'cancelled')) THEN 'runs_failure_matches_status'
    WHEN NEW.status = 'cancelling' AND (NEW.cancel_request_id IS NULL OR NEW.cancel_deadline_at IS NULL) THEN 'runs_cancelling_has_deadline'
    WHEN num_nulls(NEW.cancel_request_id, NEW.cancel_requested_at, NEW.cancel_reason) NOT IN (0, 3) THEN 'runs_cancel_is_whole'
    WHEN least(NEW.last_event_seq, NEW.last_command_seq, NEW.last_producer_seq, NEW.claim_epoch, NEW.attempts) < 0 THEN 'runs_counters_not_negative'
    WHEN NEW.max_attempts NOT BETWEEN 1 AND 20 THEN 'runs_max_attempts_in_range'
    WHEN NEW.max_duration_ms < 1000 THEN 'runs_max_duration_in_range'
    WHEN NEW.duration_deadline_at IS NOT NULL AND num_nulls(NEW.max_duration_ms, NEW.started_at) > 0 THEN 'runs_duration_is_whole'
    WHEN NEW.shard NOT BETWEEN 0 AND 31 THEN 'runs_shard_in_range'
    WHEN NEW.events_pruned_at IS NOT NULL AND NEW.finished_at IS NULL THEN 'runs_events_of_open_run_stay'
    WHEN NEW.events_pruned_through IS NOT NULL AND NEW.events_pruned_at IS NULL THEN 'runs_events_pruning_is_whole'
  END;
BEGIN
  IF broken IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "runs" violates check constraint "%"', broken
      USING ERRCODE = 'check_violation', SCHEMA = 'runplane', TABLE = 'runs', CONSTRAINT = broken;
  END IF;
  RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER "runs_rules" AFTER INSERT OR UPDATE OF "id", "status", "finished_at", "claimed_by", "failure_kind", "cancel_request_id",
  "cancel_requested_at", "cancel_reason", "cancel_deadline_at", "last_command_seq", "claim_epoch", "attempts", "max_attempts", "shard",
  "max_duration_ms", "started_at", "duration_deadline_at", "events_pruned_at", "events_pruned_through"
  ON "runplane"."runs" FOR EACH ROW EXECUTE FUNCTION "runplane"."check_run"();

ALTER TABLE "runplane"."sessions"
  ADD CONSTRAINT "sessions_summary_is_object" CHECK (jsonb_typeof("summary") = 'object'),
  ADD CONSTRAINT "sessions_storage_has_name" CHECK ("storage_kind" NOT IN ('pvc', 'folder') OR "storage_pvc_name" IS NOT NULL),
  ADD CONSTRAINT "sessions_storage_lease_is_whole" CHECK (("storage_lease_owner" IS NULL) = ("storage_lease_expires_at" IS NULL));

ALTER TABLE "runplane"."runner_jobs"
  ADD CONSTRAINT "runner_jobs_key_has_hash" CHECK ("idempotency_key" IS NULL OR ("payload_hash" IS NOT NULL AND "hash_version" IS NOT NULL)),
  ADD CONSTRAINT "runner_jobs_result_is_object" CHECK (jsonb_typeof("result") = 'object');

ALTER TABLE "runplane"."reservations"
  ADD CONSTRAINT "reservations_slot_positive" CHECK ("slot" > 0),
  ADD CONSTRAINT "reservations_holder_is_whole" CHECK (("owner" IS NULL) = ("expires_at" IS NULL));

ALTER TABLE "runplane"."backends"
  ADD CONSTRAINT "backends_profile_is_short" CHECK (octet_length("profile") BETWEEN 1 AND 200);

-- By hand: the counts' deltas come and go all the time, the table stays small: vacuumed by count.
ALTER TABLE "runplane"."run_status_counts" SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
