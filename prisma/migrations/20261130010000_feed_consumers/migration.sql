-- Registered readers of the feed, and the floor of its retention. Additive: takes no lock on tables that are there. Code of before runs on against
-- it, and never looks below the floor, which only code of now moves.

-- CreateTable
CREATE TABLE "runplane"."outbox_floor" (
    "singleton" BOOLEAN NOT NULL DEFAULT true,
    "tx" BIGINT NOT NULL DEFAULT 0,
    "position" BIGINT NOT NULL DEFAULT 0,
    "pruned_tx" BIGINT NOT NULL DEFAULT 0,
    "pruned_position" BIGINT NOT NULL DEFAULT 0,
    "moved_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "outbox_floor_pkey" PRIMARY KEY ("singleton")
);

-- CreateTable
CREATE TABLE "runplane"."outbox_marks" (
    "marked_at" TIMESTAMPTZ(3) NOT NULL,
    "tx" BIGINT NOT NULL,
    "position" BIGINT NOT NULL,

    CONSTRAINT "outbox_marks_pkey" PRIMARY KEY ("marked_at")
);

-- CreateTable
CREATE TABLE "runplane"."feed_consumers" (
    "scope" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "tx" BIGINT NOT NULL,
    "position" BIGINT NOT NULL,
    "registered_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "seen_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),
    "moved_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "feed_consumers_pkey" PRIMARY KEY ("scope","name")
);

-- By hand: the one row, and rules that hold whoever writes.
INSERT INTO "runplane"."outbox_floor" DEFAULT VALUES;

ALTER TABLE "runplane"."outbox_floor"
  ADD CONSTRAINT "outbox_floor_has_one_row" CHECK ("singleton"),
  ADD CONSTRAINT "outbox_floor_is_above_what_is_pruned" CHECK (("pruned_tx", "pruned_position") <= ("tx", "position"));

ALTER TABLE "runplane"."feed_consumers"
  ADD CONSTRAINT "feed_consumers_name_is_short" CHECK (octet_length("name") BETWEEN 1 AND 200),
  ADD CONSTRAINT "feed_consumers_place_not_negative" CHECK ("tx" >= 0 AND "position" >= 0);

-- By hand: commits rewrite one row again and again.
ALTER TABLE "runplane"."feed_consumers" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
