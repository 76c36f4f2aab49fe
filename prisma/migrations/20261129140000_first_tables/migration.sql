-- The first tables. Locks: only what it creates. An empty database is all it needs; run again by nobody.
-- Written by Prisma from prisma/schema and reviewed; the parts below "By hand" are what Prisma's language cannot say.

-- By hand: IF NOT EXISTS asks for the right to create schemas even when there is nothing to do; an operator may have made it for our role.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'runplane') THEN CREATE SCHEMA "runplane"; END IF;
END $$;

-- By hand: the clock. A test may set it for a session (set_config('runplane.fake_now', …)); milliseconds, as all columns have.
-- VOLATILE on purpose: time goes on inside a transaction, so that a lease is judged by the time after the wait for its lock.
CREATE FUNCTION "runplane"."app_now"() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT date_trunc('milliseconds', coalesce(nullif(current_setting('runplane.fake_now', true), '')::timestamptz, clock_timestamp()))
$$;

-- By hand: the one spelling in which a time leaves the database.
CREATE FUNCTION "runplane"."wire_time"(timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- By hand: milliseconds until a time, rounded up, so that a live lease never reads as 0. Beyond three weeks it stays at int4's end.
CREATE FUNCTION "runplane"."ms_until"(timestamptz, now timestamptz) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT greatest(least(ceil(extract(epoch FROM $1 - now) * 1000), 2147483647), -2147483648)::integer
$$;

-- CreateEnum
CREATE TYPE "runplane"."outbox_stream" AS ENUM ('run', 'session');

-- CreateEnum
CREATE TYPE "runplane"."run_state" AS ENUM ('pending', 'claimed', 'cancelling', 'completed', 'failed', 'blocked', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."command_state" AS ENUM ('pending', 'acknowledged', 'completed', 'failed', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."intent_state" AS ENUM ('pending', 'dispatching', 'retry', 'dispatched', 'failed', 'cancelled');

-- CreateEnum
CREATE TYPE "runplane"."cancel_stage" AS ENUM ('accepted', 'persisted', 'delivered', 'aborting', 'fenced', 'terminalized');

-- CreateEnum
CREATE TYPE "runplane"."cancel_target_kind" AS ENUM ('run', 'command', 'session', 'task');

-- CreateEnum
CREATE TYPE "runplane"."runner_lost_policy" AS ENUM ('fail', 'requeue');

-- CreateEnum
CREATE TYPE "runplane"."dispatch_outcome" AS ENUM ('created', 'adopted', 'active-runner');

-- CreateEnum
CREATE TYPE "runplane"."session_state" AS ENUM ('idle', 'running', 'terminal');

-- CreateTable
CREATE TABLE "runplane"."api_keys" (
    "id" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "key_hash" TEXT NOT NULL,
    "scopes" TEXT[],
    "run_id" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "expires_at" TIMESTAMPTZ(3),
    "last_used_at" TIMESTAMPTZ(3),
    "revoked_at" TIMESTAMPTZ(3),

    CONSTRAINT "api_keys_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "runplane"."tenants" (
    "id" TEXT NOT NULL,
    "settings" JSONB NOT NULL DEFAULT '{}',
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "tenants_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "runplane"."store" (
    "singleton" BOOLEAN NOT NULL DEFAULT true,
    "store_id" TEXT NOT NULL,
    "tx_offset" BIGINT NOT NULL DEFAULT 0,
    "system_identifier" TEXT NOT NULL,
    "timeline" INTEGER NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "store_pkey" PRIMARY KEY ("singleton")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_events" (
    "tx" BIGINT NOT NULL,
    "position" BIGINT GENERATED ALWAYS AS IDENTITY,
    "shard" SMALLINT NOT NULL,
    "partition_key" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "stream" "runplane"."outbox_stream" NOT NULL,
    "stream_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "type" TEXT NOT NULL,
    "project_id" TEXT,
    "session_id" TEXT,
    "run_id" TEXT,
    "command_id" TEXT,
    "event_id" TEXT NOT NULL,
    "data" JSON NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "outbox_events_pkey" PRIMARY KEY ("tx","position")
);

-- CreateTable
CREATE TABLE "runplane"."runs" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL,
    "session_id" TEXT,
    "session_ref" JSONB,
    "workspace_ref" JSONB NOT NULL,
    "resource_bundle_ref" JSONB,
    "provider_id" TEXT NOT NULL,
    "backend_profile" TEXT NOT NULL,
    "execution_policy" JSONB NOT NULL,
    "trace_sink" JSONB,
    "input_hash" TEXT NOT NULL,
    "hash_version" SMALLINT NOT NULL,
    "status" "runplane"."run_state" NOT NULL DEFAULT 'pending',
    "failure_kind" TEXT,
    "failure_message" TEXT,
    "claimed_by" TEXT,
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "max_attempts" INTEGER NOT NULL,
    "on_runner_lost" "runplane"."runner_lost_policy" NOT NULL,
    "claim_deadline_at" TIMESTAMPTZ(3),
    "last_event_seq" BIGINT NOT NULL DEFAULT 0,
    "last_command_seq" INTEGER NOT NULL DEFAULT 0,
    "last_producer_seq" INTEGER NOT NULL DEFAULT 0,
    "last_tx" BIGINT NOT NULL DEFAULT 0,
    "partition_key" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "cancel_epoch" INTEGER NOT NULL DEFAULT 0,
    "cancel_request_id" TEXT,
    "cancel_requested_at" TIMESTAMPTZ(3),
    "cancel_reason" TEXT,
    "cancel_deadline_at" TIMESTAMPTZ(3),
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "finished_at" TIMESTAMPTZ(3),

    CONSTRAINT "runs_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."run_leases" (
    "tenant_id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "runner_id" TEXT NOT NULL,
    "epoch" INTEGER NOT NULL,
    "expires_at" TIMESTAMPTZ(3) NOT NULL,
    "heartbeat_at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "run_leases_pkey" PRIMARY KEY ("tenant_id","run_id")
);

-- CreateTable
CREATE TABLE "runplane"."commands" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "session_id" TEXT,
    "seq" INTEGER NOT NULL,
    "type" TEXT NOT NULL,
    "payload" JSON NOT NULL,
    "payload_hash" TEXT NOT NULL,
    "hash_version" SMALLINT NOT NULL,
    "idempotency_key" TEXT,
    "target_command_id" TEXT,
    "state" "runplane"."command_state" NOT NULL DEFAULT 'pending',
    "failure_kind" TEXT,
    "failure_message" TEXT,
    "cancel_epoch" INTEGER NOT NULL DEFAULT 0,
    "cancel_request_id" TEXT,
    "cancel_requested_at" TIMESTAMPTZ(3),
    "cancel_reason" TEXT,
    "cancel_deadline_at" TIMESTAMPTZ(3),
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "acknowledged_at" TIMESTAMPTZ(3),
    "finished_at" TIMESTAMPTZ(3),

    CONSTRAINT "commands_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."run_events" (
    "tenant_id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "seq" BIGINT NOT NULL,
    "id" TEXT NOT NULL,
    "type" TEXT NOT NULL,
    "payload" JSON NOT NULL,
    "command_id" TEXT,
    "tool_call_id" TEXT,
    "is_output" BOOLEAN NOT NULL,
    "producer_epoch" INTEGER,
    "producer_seq" INTEGER,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "run_events_pkey" PRIMARY KEY ("tenant_id","run_id","seq")
);

-- CreateTable
CREATE TABLE "runplane"."runners" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "run_id" TEXT,
    "attempt_id" TEXT,
    "backend_profile" TEXT,
    "placement" TEXT,
    "source_commit" TEXT,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "registered_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "heartbeat_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "runners_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."runner_jobs" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "command_id" TEXT NOT NULL,
    "intent_id" TEXT NOT NULL,
    "launcher" TEXT NOT NULL,
    "job_name" TEXT NOT NULL,
    "result" JSONB NOT NULL DEFAULT '{}',
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "runner_jobs_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."dispatch_intents" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "run_id" TEXT NOT NULL,
    "command_id" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "input" JSON NOT NULL,
    "input_hash" TEXT NOT NULL,
    "hash_version" SMALLINT NOT NULL,
    "state" "runplane"."intent_state" NOT NULL DEFAULT 'pending',
    "generation" INTEGER NOT NULL DEFAULT 1,
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "ready_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "last_error" TEXT,
    "runner_job_id" TEXT NOT NULL,
    "dispatch_outcome" "runplane"."dispatch_outcome",
    "actual_runner_job_id" TEXT,
    "active_runner_id" TEXT,
    "dispatched_at" TIMESTAMPTZ(3),
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "finished_at" TIMESTAMPTZ(3),

    CONSTRAINT "dispatch_intents_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."cancel_requests" (
    "tenant_id" TEXT NOT NULL,
    "id" TEXT NOT NULL,
    "target_kind" "runplane"."cancel_target_kind" NOT NULL,
    "target_id" TEXT NOT NULL,
    "run_id" TEXT,
    "command_id" TEXT,
    "session_id" TEXT,
    "task_id" TEXT,
    "reason" TEXT NOT NULL,
    "requested_by" TEXT,
    "epoch" INTEGER NOT NULL,
    "stage" "runplane"."cancel_stage" NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "cancel_requests_pkey" PRIMARY KEY ("tenant_id","id")
);

-- CreateTable
CREATE TABLE "runplane"."sessions" (
    "tenant_id" TEXT NOT NULL,
    "session_id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL,
    "backend_profile" TEXT NOT NULL,
    "conversation_id" TEXT,
    "thread_id" TEXT,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "title" TEXT,
    "execution_state" "runplane"."session_state" NOT NULL DEFAULT 'idle',
    "active_run_id" TEXT,
    "active_command_id" TEXT,
    "last_run_id" TEXT,
    "last_command_id" TEXT,
    "terminal_status" TEXT,
    "failure_kind" TEXT,
    "version" BIGINT NOT NULL DEFAULT 1,
    "last_tx" BIGINT NOT NULL DEFAULT 0,
    "partition_key" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "last_activity_at" TIMESTAMPTZ(3),
    "expires_at" TIMESTAMPTZ(3),
    "ttl_seconds" INTEGER,

    CONSTRAINT "sessions_pkey" PRIMARY KEY ("tenant_id","session_id")
);

-- CreateIndex
CREATE UNIQUE INDEX "api_keys_key_hash_key" ON "runplane"."api_keys"("key_hash");

-- CreateIndex
CREATE INDEX "api_keys_tenant_id_created_at_idx" ON "runplane"."api_keys"("tenant_id", "created_at");

-- CreateIndex
CREATE INDEX "api_keys_tenant_id_run_id_idx" ON "runplane"."api_keys"("tenant_id", "run_id") WHERE (run_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "outbox_events_shard_tx_position_idx" ON "runplane"."outbox_events"("shard", "tx", "position");

-- CreateIndex
-- By hand: COLLATE "C" on the tenant, which the list spells too. An equality of tenants elsewhere is in the default collation and cannot use
-- this index: on a small table it would cost as much as the primary key, and a plan made on that day walks all runs of the tenant.
CREATE INDEX "runs_tenant_id_updated_at_id_idx" ON "runplane"."runs"("tenant_id" COLLATE "C", "updated_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "runs_tenant_id_session_id_created_at_id_idx" ON "runplane"."runs"("tenant_id", "session_id", "created_at" DESC, "id" DESC) WHERE (session_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "runs_claim_deadline_at_id_idx" ON "runplane"."runs"("claim_deadline_at", "id") WHERE ((status = 'pending'::runplane.run_state) AND (claim_deadline_at IS NOT NULL));

-- CreateIndex
CREATE INDEX "runs_cancel_deadline_at_id_idx" ON "runplane"."runs"("cancel_deadline_at", "id") WHERE (status = 'cancelling'::runplane.run_state);

-- CreateIndex
CREATE INDEX "commands_cancel_deadline_at_id_idx" ON "runplane"."commands"("cancel_deadline_at", "id") WHERE ((cancel_deadline_at IS NOT NULL) AND (state = ANY (ARRAY['pending'::runplane.command_state, 'acknowledged'::runplane.command_state])));

-- CreateIndex
CREATE UNIQUE INDEX "commands_tenant_id_run_id_seq_key" ON "runplane"."commands"("tenant_id", "run_id", "seq");

-- CreateIndex
CREATE UNIQUE INDEX "commands_run_idempotency_key" ON "runplane"."commands"("tenant_id", "run_id", "idempotency_key") WHERE (idempotency_key IS NOT NULL);

-- CreateIndex
CREATE UNIQUE INDEX "commands_session_idempotency_key" ON "runplane"."commands"("tenant_id", "session_id", "idempotency_key") WHERE ((idempotency_key IS NOT NULL) AND (session_id IS NOT NULL) AND (type = ANY (ARRAY['turn'::text, 'steer'::text])));

-- CreateIndex
CREATE UNIQUE INDEX "commands_open_turn_per_session" ON "runplane"."commands"("tenant_id", "session_id") WHERE ((type = 'turn'::text) AND (state = ANY (ARRAY['pending'::runplane.command_state, 'acknowledged'::runplane.command_state])));

-- CreateIndex
CREATE INDEX "run_events_tenant_id_run_id_tool_call_id_idx" ON "runplane"."run_events"("tenant_id", "run_id", "tool_call_id") WHERE (tool_call_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "runners_tenant_id_run_id_idx" ON "runplane"."runners"("tenant_id", "run_id") WHERE (run_id IS NOT NULL);

-- CreateIndex
CREATE INDEX "runner_jobs_tenant_id_run_id_created_at_id_idx" ON "runplane"."runner_jobs"("tenant_id", "run_id", "created_at", "id");

-- CreateIndex
CREATE INDEX "dispatch_intents_due" ON "runplane"."dispatch_intents"("ready_at", "id") WHERE (state = ANY (ARRAY['pending'::runplane.intent_state, 'dispatching'::runplane.intent_state, 'retry'::runplane.intent_state]));

-- CreateIndex
CREATE INDEX "dispatch_intents_tenant_id_run_id_idx" ON "runplane"."dispatch_intents"("tenant_id", "run_id");

-- CreateIndex
CREATE UNIQUE INDEX "dispatch_intents_tenant_id_command_id_generation_key" ON "runplane"."dispatch_intents"("tenant_id", "command_id", "generation");

-- CreateIndex
CREATE UNIQUE INDEX "dispatch_intents_open_per_command" ON "runplane"."dispatch_intents"("tenant_id", "command_id") WHERE (state = ANY (ARRAY['pending'::runplane.intent_state, 'dispatching'::runplane.intent_state, 'retry'::runplane.intent_state]));

-- CreateIndex
CREATE INDEX "cancel_requests_tenant_id_run_id_created_at_id_idx" ON "runplane"."cancel_requests"("tenant_id", "run_id", "created_at", "id");

-- AddForeignKey
ALTER TABLE "runplane"."api_keys" ADD CONSTRAINT "api_keys_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "runplane"."tenants"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."runs" ADD CONSTRAINT "runs_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "runplane"."tenants"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."runs" ADD CONSTRAINT "runs_tenant_id_session_id_fkey" FOREIGN KEY ("tenant_id", "session_id") REFERENCES "runplane"."sessions"("tenant_id", "session_id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."run_leases" ADD CONSTRAINT "run_leases_tenant_id_run_id_fkey" FOREIGN KEY ("tenant_id", "run_id") REFERENCES "runplane"."runs"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."commands" ADD CONSTRAINT "commands_tenant_id_run_id_fkey" FOREIGN KEY ("tenant_id", "run_id") REFERENCES "runplane"."runs"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."runner_jobs" ADD CONSTRAINT "runner_jobs_tenant_id_run_id_fkey" FOREIGN KEY ("tenant_id", "run_id") REFERENCES "runplane"."runs"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."dispatch_intents" ADD CONSTRAINT "dispatch_intents_tenant_id_command_id_fkey" FOREIGN KEY ("tenant_id", "command_id") REFERENCES "runplane"."commands"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."cancel_requests" ADD CONSTRAINT "cancel_requests_tenant_id_run_id_fkey" FOREIGN KEY ("tenant_id", "run_id") REFERENCES "runplane"."runs"("tenant_id", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "runplane"."sessions" ADD CONSTRAINT "sessions_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "runplane"."tenants"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- By hand: the store's row. Cursors of the feed name it; system identifier and timeline tell a restored or promoted copy.
ALTER TABLE "runplane"."store" ADD CONSTRAINT "store_has_one_row" CHECK ("singleton");
INSERT INTO "runplane"."store" ("store_id", "system_identifier", "timeline")
SELECT gen_random_uuid()::text, system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int FROM pg_control_system();

-- By hand: the feed's horizon (FEED-1): the oldest transaction still running, plus the store's offset, so that it stays comparable in a
-- restored copy. A writer's own number has the same form and stands in the statements that write it (feedTx in libs/outbox).
CREATE FUNCTION "runplane"."feed_horizon"() RETURNS bigint LANGUAGE sql STABLE PARALLEL RESTRICTED AS $$
  SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (SELECT tx_offset FROM runplane.store)
$$;

-- By hand: rules that hold whoever writes, also through Prisma Studio. The names are the rules.
ALTER TABLE "runplane"."tenants"
  ADD CONSTRAINT "tenants_id_is_simple" CHECK ("id" ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
  ADD CONSTRAINT "tenants_settings_is_object" CHECK (jsonb_typeof("settings") = 'object');

-- The rules of runs stand in a trigger, which runs only when their columns are written. PostgreSQL parses every CHECK of a table anew for each
-- UPDATE, whatever it writes: for an append, which moves counters, nine of them were 62 of 254 µs of the server's CPU (2 × AMD EPYC,
-- 2026-11-29, bench/results.md). A violation is reported as a CHECK would, under the rule's name. The counters of appends are not among the
-- columns: they only grow by their statement, and run_events refuses a sequence below 1.
CREATE FUNCTION "runplane"."check_run"() RETURNS trigger LANGUAGE plpgsql AS $$
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
    WHEN NEW.shard NOT BETWEEN 0 AND 31 THEN 'runs_shard_in_range'
  END;
BEGIN
  IF broken IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "runs" violates check constraint "%"', broken
      USING ERRCODE = 'check_violation', SCHEMA = 'runplane', TABLE = 'runs', CONSTRAINT = broken;
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER "runs_rules" AFTER INSERT OR UPDATE OF "id", "status", "finished_at", "claimed_by", "failure_kind", "cancel_request_id",
  "cancel_requested_at", "cancel_reason", "cancel_deadline_at", "last_command_seq", "claim_epoch", "attempts", "max_attempts", "shard"
  ON "runplane"."runs" FOR EACH ROW EXECUTE FUNCTION "runplane"."check_run"();

ALTER TABLE "runplane"."run_leases" ADD CONSTRAINT "run_leases_epoch_positive" CHECK ("epoch" > 0);

ALTER TABLE "runplane"."commands"
  ADD CONSTRAINT "commands_type_is_simple" CHECK ("type" ~ '^[a-z0-9-]{1,64}$'),
  ADD CONSTRAINT "commands_finished_at_matches_state" CHECK (("finished_at" IS NOT NULL) = ("state" IN ('completed', 'failed', 'cancelled'))),
  ADD CONSTRAINT "commands_failure_matches_state" CHECK (("failure_kind" IS NOT NULL) = ("state" IN ('failed', 'cancelled'))),
  ADD CONSTRAINT "commands_acknowledged_has_time" CHECK ("state" <> 'acknowledged' OR "acknowledged_at" IS NOT NULL),
  ADD CONSTRAINT "commands_turn_and_steer_have_key" CHECK ("type" NOT IN ('turn', 'steer') OR "idempotency_key" IS NOT NULL),
  ADD CONSTRAINT "commands_seq_positive" CHECK ("seq" > 0);

ALTER TABLE "runplane"."run_events"
  ADD CONSTRAINT "run_events_seq_positive" CHECK ("seq" > 0);

ALTER TABLE "runplane"."dispatch_intents"
  ADD CONSTRAINT "dispatch_intents_holder_matches_state" CHECK (("owner" IS NOT NULL) = ("state" = 'dispatching') AND ("expires_at" IS NOT NULL) = ("state" = 'dispatching')),
  ADD CONSTRAINT "dispatch_intents_finished_at_matches_state" CHECK (("finished_at" IS NOT NULL) = ("state" IN ('dispatched', 'failed', 'cancelled'))),
  ADD CONSTRAINT "dispatch_intents_outcome_matches_state" CHECK (("dispatch_outcome" IS NOT NULL) = ("state" = 'dispatched'));

ALTER TABLE "runplane"."sessions"
  ADD CONSTRAINT "sessions_id_is_short" CHECK (octet_length("session_id") BETWEEN 1 AND 200),
  ADD CONSTRAINT "sessions_active_pair_is_whole" CHECK (("active_run_id" IS NULL) = ("active_command_id" IS NULL)),
  ADD CONSTRAINT "sessions_running_means_active" CHECK (("execution_state" = 'running') = ("active_run_id" IS NOT NULL)),
  ADD CONSTRAINT "sessions_metadata_is_object" CHECK (jsonb_typeof("metadata") = 'object'),
  ADD CONSTRAINT "sessions_shard_in_range" CHECK ("shard" BETWEEN 0 AND 31);

ALTER TABLE "runplane"."outbox_events"
  ADD CONSTRAINT "outbox_events_shard_in_range" CHECK ("shard" BETWEEN 0 AND 31);

ALTER TABLE "runplane"."api_keys"
  ADD CONSTRAINT "api_keys_hash_is_sha256" CHECK ("key_hash" ~ '^[0-9a-f]{64}$');

-- By hand: room for in-page updates (HOT) where rows change often; the lease table is vacuumed by count, it is small and busy.
ALTER TABLE "runplane"."runs" SET (fillfactor = 70);
ALTER TABLE "runplane"."sessions" SET (fillfactor = 80);
ALTER TABLE "runplane"."commands" SET (fillfactor = 85);
ALTER TABLE "runplane"."dispatch_intents" SET (fillfactor = 80);
ALTER TABLE "runplane"."run_leases" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
