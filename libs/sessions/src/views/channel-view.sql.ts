import { DELIVERY_STATES, LIST_SCAN_ROWS_MAX, type DeliveryState } from '@runplane/contracts';
import { column, emptySql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { Found, withinBytes } from '../page.sql';
import type { SessionKey } from '../session.sql';

const BindingRow = z.object({ address: column.text, sequence: column.int8, data: column.jsonObject, ...Found });
const ofSession = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

export function listBindingRows(
  on: SqlExecutor,
  key: SessionKey,
  { after, limit }: { after: string | undefined; limit: number },
): Promise<z.infer<typeof BindingRow>[]> {
  const page = sql`SELECT * FROM runplane.channel_bindings
      WHERE ${ofSession(key)} ${after === undefined ? emptySql : sql`AND address > ${after}::text`} ORDER BY address LIMIT ${limit}::int`;
  return rows(
    on,
    BindingRow,
    sql`SELECT p.address AS "address", p.sequence::text AS "sequence", p.data::text AS "data", p.found AS "found"
      FROM ${withinBytes(page, { size: sql`octet_length(p.data::text)`, order: sql`p.address` })} ORDER BY p.address`,
  );
}

const DeliveryRow = z.object({
  deliveryId: column.text,
  state: column.state(DELIVERY_STATES),
  data: column.jsonObject.nullable(),
  error: column.text.nullable(),
  queuedSequence: column.int8.nullable(),
  completedSequence: column.int8.nullable(),
  updatedAt: column.time,
  ...Found,
});
export type DeliveryRow = z.infer<typeof DeliveryRow>;
const ScannedDelivery = z.union([
  DeliveryRow.extend({ scannedTo: column.text.nullable() }),
  z.object({ deliveryId: z.null(), scannedTo: column.text.nullable() }),
]);

/** Deliveries by id, of so many as one call looks at; `scannedTo`: where it stopped with the page not full. */
export async function listDeliveryRows(
  on: SqlExecutor,
  key: SessionKey,
  { state, after, limit }: { state: DeliveryState | undefined; after: string | undefined; limit: number },
): Promise<{ deliveries: DeliveryRow[]; scannedTo: string | undefined }> {
  const rowsMax = state === undefined ? limit : LIST_SCAN_ROWS_MAX;
  const found = await rows(
    on,
    ScannedDelivery,
    sql`WITH scanned AS MATERIALIZED (
        SELECT * FROM runplane.channel_deliveries WHERE ${ofSession(key)} ${after === undefined ? emptySql : sql`AND delivery_id > ${after}::text`}
        ORDER BY delivery_id LIMIT ${rowsMax}::int
      ), page AS MATERIALIZED (
        SELECT * FROM scanned ${state === undefined ? emptySql : sql`WHERE state = ${state}::runplane.delivery_state`} ORDER BY delivery_id LIMIT ${limit}::int
      )
      SELECT p.delivery_id AS "deliveryId", p.state::text AS "state", p.data::text AS "data", p.error AS "error", p.queued_sequence::text AS "queuedSequence",
        p.completed_sequence::text AS "completedSequence", runplane.wire_time(p.updated_at) AS "updatedAt", p.found AS "found",
        CASE WHEN s.n = ${rowsMax}::int THEN s.last END AS "scannedTo"
      FROM (SELECT count(*) AS n, max(delivery_id) AS last FROM scanned) s LEFT JOIN ${withinBytes(sql`SELECT * FROM page`, { size: sql`coalesce(octet_length(p.data::text), 0)`, order: sql`p.delivery_id` })} ON true
      ORDER BY p.delivery_id`,
  );
  const deliveries = found.flatMap((row) => {
    if (row.deliveryId === null) return [];
    const { scannedTo: _, ...delivery } = row;
    return [delivery];
  });
  return { deliveries, scannedTo: deliveries.length < limit ? (found[0]?.scannedTo ?? undefined) : undefined };
}
