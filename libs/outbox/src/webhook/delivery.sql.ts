import { DELIVERY_OUTCOMES, newId } from '@runplane/contracts';
import { column, joinSql, oneRow, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { Delivery } from './delivery';

export async function insertDeliveries(on: SqlExecutor, sink: string, deliveries: readonly Delivery[]): Promise<void> {
  const records = deliveries.map(({ record }) => record);
  await on.query(sql`
    INSERT INTO runplane.webhook_deliveries (id, sink, tenant_id, partition_key, stream, stream_id, sequence, type, event_id, outcome, http_status, error, duration_ms)
    SELECT d.id, ${sink}::text, d.tenant_id, d.partition_key, d.stream::runplane.outbox_stream, d.stream_id, d.sequence::bigint, d.type, d.event_id, d.outcome,
      d.http_status, d.error, d.duration_ms
    FROM unnest(${deliveries.map(() => newId('delivery'))}::text[], ${records.map((r) => r.tenantId)}::text[], ${records.map((r) => r.partitionKey)}::text[],
      ${records.map((r) => r.stream)}::text[], ${records.map((r) => r.streamId)}::text[], ${records.map((r) => String(r.sequence))}::text[],
      ${records.map((r) => r.type)}::text[], ${records.map((r) => r.eventId)}::text[], ${deliveries.map(({ outcome }) => outcome.kind)}::text[],
      ${deliveries.map(({ status }) => status)}::int[], ${deliveries.map(({ outcome }) => ('error' in outcome ? outcome.error : null))}::text[],
      ${deliveries.map(({ durationMs }) => durationMs)}::int[])
      AS d (id, tenant_id, partition_key, stream, stream_id, sequence, type, event_id, outcome, http_status, error, duration_ms)`);
}

const DeliveryRow = z.object({
  id: column.text,
  tenantId: column.text,
  key: column.text,
  stream: column.state(['run', 'session']),
  streamId: column.text,
  sequence: column.int8,
  type: column.text,
  eventId: column.text,
  outcome: column.state(DELIVERY_OUTCOMES),
  httpStatus: column.int.nullable(),
  error: column.text.nullable(),
  durationMs: column.int,
  triedAt: column.time,
});

export interface DeliveryPlace {
  readonly triedAt: string;
  readonly id: string;
}

/** The newest first, behind a place. Each filter has its index: what few tries fit reads not those of a week. */
export function listDeliveries(
  on: SqlExecutor,
  {
    sink,
    outcome,
    key,
    after,
    limit,
  }: { sink: string; outcome: string | null; key: string | null; after: DeliveryPlace | null; limit: number },
): Promise<z.infer<typeof DeliveryRow>[]> {
  const where = [
    sql`d.sink = ${sink}::text`,
    ...(outcome === null ? [] : [sql`d.outcome = ${outcome}::text`]),
    ...(key === null ? [] : [sql`d.partition_key = ${key}::text`]),
    ...(after === null ? [] : [sql`(d.tried_at, d.id) < (${after.triedAt}::timestamptz, ${after.id}::text)`]),
  ];
  return rows(
    on,
    DeliveryRow,
    sql`
    SELECT d.id AS "id", d.tenant_id AS "tenantId", d.partition_key AS "key", d.stream::text AS "stream", d.stream_id AS "streamId", d.sequence::text AS "sequence",
      d.type AS "type", d.event_id AS "eventId", d.outcome AS "outcome", d.http_status AS "httpStatus", d.error AS "error", d.duration_ms AS "durationMs",
      runplane.wire_time(d.tried_at) AS "triedAt"
    FROM runplane.webhook_deliveries d
    WHERE ${joinSql(where, ' AND ')}
    ORDER BY d.tried_at DESC, d.id DESC LIMIT ${limit}::int`,
  );
}

/** The oldest of those that are over age, so many at most; returns how many went. */
export async function deleteDeliveries(on: SqlExecutor, { olderThanMs, limit }: { olderThanMs: number; limit: number }): Promise<number> {
  const { n } = await oneRow(
    on,
    z.object({ n: column.int }),
    sql`
    WITH gone AS (
      DELETE FROM runplane.webhook_deliveries WHERE id = ANY (ARRAY(
        SELECT id FROM runplane.webhook_deliveries
        WHERE tried_at < (SELECT runplane.app_now() - (${String(olderThanMs)}::text || ' milliseconds')::interval)
        ORDER BY tried_at LIMIT ${limit}::int
      )) RETURNING 1
    )
    SELECT count(*)::int AS "n" FROM gone`,
  );
  return n;
}
