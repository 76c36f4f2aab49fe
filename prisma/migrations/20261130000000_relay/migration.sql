-- The relay: sinks, who relays to them, how far each shard is, and what waits behind blocked keys. Locks: only what it creates; old code runs on.
-- Written by Prisma from prisma/schema and reviewed; the parts below "By hand" are what Prisma's language cannot say.

-- By hand: a waiting ALTER TABLE stops every writer behind it, and with them the feed's horizon. Better to fail and to be repeated.
SELECT set_config('lock_timeout', '5s', true);

-- CreateTable
CREATE TABLE "runplane"."outbox_sinks" (
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "restart_tx" BIGINT,
    "restart_position" BIGINT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "outbox_sinks_pkey" PRIMARY KEY ("name")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_relays" (
    "sink" TEXT NOT NULL,
    "owner" TEXT NOT NULL,
    "expires_at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "outbox_relays_pkey" PRIMARY KEY ("sink","owner")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_shards" (
    "sink" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "owner" TEXT,
    "epoch" INTEGER NOT NULL DEFAULT 0,
    "expires_at" TIMESTAMPTZ(3),
    "tx" BIGINT NOT NULL,
    "position" BIGINT NOT NULL,
    "replay_tx" BIGINT,
    "replay_position" BIGINT,
    "replay_to_tx" BIGINT,
    "replay_to_position" BIGINT,
    "ready_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "failures" INTEGER NOT NULL DEFAULT 0,
    "failed_at" TIMESTAMPTZ(3),
    "last_error" TEXT,
    "sent_at" TIMESTAMPTZ(3),

    CONSTRAINT "outbox_shards_pkey" PRIMARY KEY ("sink","shard")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_held" (
    "sink" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "partition_key" TEXT NOT NULL,
    "tx" BIGINT NOT NULL,
    "position" BIGINT NOT NULL,
    "held_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "outbox_held_pkey" PRIMARY KEY ("sink","shard","partition_key","tx","position")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_blocked_keys" (
    "sink" TEXT NOT NULL,
    "shard" SMALLINT NOT NULL,
    "partition_key" TEXT NOT NULL,
    "tx" BIGINT NOT NULL,
    "position" BIGINT NOT NULL,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "failures" INTEGER NOT NULL DEFAULT 0,
    "blocked_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "ready_at" TIMESTAMPTZ(3) NOT NULL,
    "parked_at" TIMESTAMPTZ(3),
    "reason" TEXT,
    "last_error" TEXT,
    "revision" INTEGER NOT NULL DEFAULT 0,

    CONSTRAINT "outbox_blocked_keys_pkey" PRIMARY KEY ("sink","shard","partition_key")
);

-- CreateIndex
CREATE INDEX "outbox_held_sink_tx_position_idx" ON "runplane"."outbox_held"("sink", "tx", "position");

-- CreateIndex
CREATE INDEX "outbox_held_held_at_tx_position_sink_idx" ON "runplane"."outbox_held"("held_at", "tx", "position", "sink");

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_due" ON "runplane"."outbox_blocked_keys"("sink", "shard", "ready_at", "partition_key") WHERE (parked_at IS NULL);

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_parked" ON "runplane"."outbox_blocked_keys"("sink", "parked_at", "partition_key") WHERE (parked_at IS NOT NULL);

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_parked_list" ON "runplane"."outbox_blocked_keys"("sink", "shard", "partition_key") WHERE (parked_at IS NOT NULL);

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_retrying_list" ON "runplane"."outbox_blocked_keys"("sink", "shard", "partition_key") WHERE (parked_at IS NULL);

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_sink_attempts_idx" ON "runplane"."outbox_blocked_keys"("sink", "attempts");

-- CreateIndex
CREATE INDEX "outbox_blocked_keys_sink_tx_position_idx" ON "runplane"."outbox_blocked_keys"("sink", "tx", "position");


-- By hand: rules that hold whoever writes, also through Prisma Studio. The names are the rules.
ALTER TABLE "runplane"."outbox_sinks"
  ADD CONSTRAINT "outbox_sinks_name_is_simple" CHECK ("name" ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
  ADD CONSTRAINT "outbox_sinks_restart_is_whole" CHECK (num_nulls("restart_tx", "restart_position") IN (0, 2)),
  ADD CONSTRAINT "outbox_sinks_restart_is_disabled" CHECK (NOT "enabled" OR "restart_tx" IS NULL);
ALTER TABLE "runplane"."outbox_shards"
  ADD CONSTRAINT "outbox_shards_shard_in_range" CHECK ("shard" BETWEEN 0 AND 31),
  ADD CONSTRAINT "outbox_shards_holder_is_whole" CHECK (num_nulls("owner", "expires_at") IN (0, 2)),
  ADD CONSTRAINT "outbox_shards_replay_is_whole" CHECK (num_nulls("replay_tx", "replay_position", "replay_to_tx", "replay_to_position") IN (0, 4)),
  ADD CONSTRAINT "outbox_shards_replay_is_behind" CHECK (("replay_to_tx", "replay_to_position") <= ("tx", "position"));

-- By hand: small rows that change often. In-page updates, and vacuum by count.
ALTER TABLE "runplane"."outbox_shards" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE "runplane"."outbox_relays" SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
