-- What webhooks were told and what they answered. Additive: takes no lock on tables that are there.

-- CreateTable
CREATE TABLE "runplane"."webhook_deliveries" (
    "id" TEXT NOT NULL,
    "sink" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "partition_key" TEXT NOT NULL,
    "stream" "runplane"."outbox_stream" NOT NULL,
    "stream_id" TEXT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "type" TEXT NOT NULL,
    "event_id" TEXT NOT NULL,
    "outcome" TEXT NOT NULL,
    "http_status" INTEGER,
    "error" TEXT,
    "duration_ms" INTEGER NOT NULL,
    "tried_at" TIMESTAMPTZ(3) NOT NULL DEFAULT runplane.app_now(),

    CONSTRAINT "webhook_deliveries_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE INDEX "webhook_deliveries_sink_tried_at_id_idx" ON "runplane"."webhook_deliveries"("sink", "tried_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "webhook_deliveries_sink_outcome_tried_at_id_idx" ON "runplane"."webhook_deliveries"("sink", "outcome", "tried_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "webhook_deliveries_sink_partition_key_tried_at_id_idx" ON "runplane"."webhook_deliveries"("sink", "partition_key", "tried_at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "webhook_deliveries_tried_at_idx" ON "runplane"."webhook_deliveries"("tried_at");
