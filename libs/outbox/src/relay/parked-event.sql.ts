import { column, maybeRow, oneRow, rows, sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from '../feed.sql';
import { eventsOf } from '../outbox-rows.sql';

// Events at which a key is parked, and that have waited for long: what retention gives up (docs/adr/0031).

/** The event at which a key of a sink is blocked. */
export interface ParkedEventKey {
  readonly sink: string;
  readonly shard: number;
  readonly key: string;
  readonly place: FeedPlace;
}

const WaitingRow = z.object({
  sink: column.text,
  shard: column.int,
  key: column.text,
  tenantId: column.text,
  tx: column.bigint,
  position: column.bigint,
  heldAt: column.time,
  heldForMs: column.int8,
  isParked: column.bool,
});
export type WaitingRow = z.infer<typeof WaitingRow>;

/** A place in the order in which events began to wait. */
export interface WaitingPlace {
  readonly at: string;
  readonly id: string;
}

export const waitingPlaceOf = ({ heldAt, tx, position, sink }: WaitingRow): WaitingPlace => ({
  at: heldAt,
  id: `${tx} ${position} ${sink}`,
});

/** Asked for each row by itself (OFFSET 0), not of whole tables. Of key `b`, as the first held event `h` has it: the sink is served, and refuses the event for good. */
const IS_PARKED = sql`EXISTS (
      SELECT FROM runplane.outbox_blocked_keys b JOIN runplane.outbox_sinks k ON k.name = b.sink AND k.enabled
      WHERE b.sink = h.sink AND b.shard = h.shard AND b.partition_key = h.partition_key AND b.parked_at IS NOT NULL OFFSET 0
    ) AND NOT EXISTS (
      SELECT FROM runplane.outbox_held x
      WHERE x.sink = h.sink AND x.shard = h.shard AND x.partition_key = h.partition_key AND (x.tx, x.position) < (h.tx, h.position) OFFSET 0
    )`;

/** Events that have waited for so many days, those that wait longest first; with each whether its key is parked at it. */
export function listWaitingEvents(
  on: SqlExecutor,
  { tenantId, days, after, limit }: { tenantId: string | undefined; days: number; after: WaitingPlace | null; limit: number },
): Promise<WaitingRow[]> {
  const [tx = '0', position = '0', sink = ''] = after?.id.split(' ') ?? [];
  return rows(
    on,
    WaitingRow,
    sql`
    SELECT h.sink AS "sink", h.shard::int AS "shard", h.partition_key AS "key", split_part(h.partition_key, '/', 1) AS "tenantId", h.tx::text AS "tx",
      h.position::text AS "position", runplane.wire_time(h.held_at) AS "heldAt",
      (extract(epoch FROM runplane.app_now() - h.held_at) * 1000)::bigint::text AS "heldForMs",
      (${tenantId ?? null}::text IS NULL OR split_part(h.partition_key, '/', 1) = ${tenantId ?? null}::text) AND ${IS_PARKED} AS "isParked"
    FROM (
      SELECT * FROM runplane.outbox_held h
      WHERE h.held_at <= (SELECT runplane.app_now()) - ${days}::int * interval '1 day'
        AND (h.held_at, h.tx, h.position, h.sink) > (${after?.at ?? '-infinity'}::timestamptz, ${tx}::bigint, ${position}::bigint, ${sink}::text)
      ORDER BY h.held_at, h.tx, h.position, h.sink LIMIT ${limit}::int
    ) h ORDER BY h.held_at, h.tx, h.position, h.sink`,
  );
}

const UndeliveredRow = z.object({
  stream: column.state(['run', 'session']),
  streamId: column.text,
  sequence: column.int8,
  type: column.text,
  eventId: column.text,
  parkedAt: column.time,
  attempts: column.int,
  reason: column.text.nullable(),
  lastError: column.text.nullable(),
  /** Of the server's own events of a run. */
  phase: column.text.nullable(),
  row: column.text,
});
/** An event with why the sink has not taken it; `row`: all of it, as JSON, for a copy. */
export type UndeliveredEvent = z.infer<typeof UndeliveredRow>;

const ofKey = ({ sink, shard, key, place }: ParkedEventKey) =>
  sql`h.sink = ${sink}::text AND h.shard = ${shard}::int AND h.partition_key = ${key}::text
      AND h.tx = ${String(place.tx)}::bigint AND h.position = ${String(place.position)}::bigint`;

/** Undefined: it is not parked there any more, or its session has been erased. No lock. */
export function findUndelivered(on: SqlExecutor, parked: ParkedEventKey): Promise<UndeliveredEvent | undefined> {
  return maybeRow(
    on,
    UndeliveredRow,
    sql`
    SELECT e.stream::text AS "stream", e.stream_id AS "streamId", e.sequence::text AS "sequence", e.type AS "type", e.event_id AS "eventId",
      runplane.wire_time(b.parked_at) AS "parkedAt", b.attempts AS "attempts", b.reason AS "reason", b.last_error AS "lastError", e.data ->> 'phase' AS "phase",
      json_build_object('sink', h.sink, 'key', h.partition_key, 'tx', h.tx::text, 'position', h.position::text, 'heldAt', runplane.wire_time(h.held_at),
        'parkedAt', runplane.wire_time(b.parked_at), 'attempts', b.attempts, 'reason', b.reason, 'lastError', b.last_error,
        'stream', e.stream, 'streamId', e.stream_id, 'sequence', e.sequence, 'type', e.type, 'eventId', e.event_id, 'tenantId', e.tenant_id,
        'projectId', e.project_id, 'sessionId', e.session_id, 'runId', e.run_id, 'commandId', e.command_id, 'time', runplane.wire_time(e.created_at),
        'data', e.data)::text AS "row"
    FROM runplane.outbox_held h JOIN runplane.outbox_blocked_keys b ON b.sink = h.sink AND b.shard = h.shard AND b.partition_key = h.partition_key
    CROSS JOIN LATERAL (
      SELECT * FROM (${eventsOf(sql`(SELECT * FROM runplane.outbox_events o WHERE o.tx = h.tx AND o.position <= h.position ORDER BY o.position DESC LIMIT 1)`)}) e
      WHERE e.position = h.position
    ) e
    WHERE ${ofKey(parked)} AND b.parked_at IS NOT NULL`,
  );
}

/** Whether a key is still parked at an event that has waited for so many days. Under the shard's lock. */
export async function isStillParked(tx: Tx, parked: ParkedEventKey, days: number): Promise<boolean> {
  const { found } = await oneRow(
    tx,
    z.object({ found: column.bool }),
    sql`SELECT EXISTS (
          SELECT FROM runplane.outbox_held h
          WHERE ${ofKey(parked)} AND h.held_at <= (SELECT runplane.app_now()) - ${days}::int * interval '1 day' AND ${IS_PARKED}
        ) AS "found"`,
  );
  return found;
}
