import { column, maybeRow, oneRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from './feed.sql';
import { lastPosition } from './outbox-rows.sql';

/** A tenant, or undefined for the operator's own consumers, which read the events of all tenants. */
export interface FeedScope {
  readonly tenantId: string | undefined;
}

export interface ConsumerKey extends FeedScope {
  readonly name: string;
}

/** No tenant's id can be this. */
const OPERATOR = '*';
export const scopeOf = ({ tenantId }: FeedScope): string => tenantId ?? OPERATOR;

const ofConsumer = (key: ConsumerKey) => sql`scope = ${scopeOf(key)}::text AND name = ${key.name}::text`;

export function takeConsumerLock(tx: Tx, key: ConsumerKey): void {
  takingLock(tx, 'feedConsumer', `${scopeOf(key)}/${key.name}`);
}

/** What of the store a cursor is judged by, in one snapshot. */
const StorePlaces = z.object({
  storeId: column.text,
  horizon: column.bigint,
  floorTx: column.bigint,
  floorPosition: column.bigint,
  headTx: column.bigint.nullable(),
  headPosition: column.bigint.nullable(),
});
export type StorePlaces = z.infer<typeof StorePlaces>;

export function readStorePlaces(on: SqlExecutor): Promise<StorePlaces> {
  return oneRow(
    on,
    StorePlaces,
    sql`SELECT s.store_id AS "storeId", runplane.feed_horizon()::text AS "horizon", f.tx::text AS "floorTx", f.position::text AS "floorPosition",
          h.tx::text AS "headTx", h.position::text AS "headPosition"
        FROM runplane.store s CROSS JOIN runplane.outbox_floor f LEFT JOIN LATERAL (
          SELECT o.tx, ${lastPosition} AS position FROM runplane.outbox_events o WHERE o.tx < (SELECT runplane.feed_horizon()) ORDER BY o.tx DESC, o.position DESC LIMIT 1
        ) h ON true`,
  );
}

const Counted = z.object({ consumers: column.int });

export async function countConsumers(on: SqlExecutor, scope: FeedScope): Promise<number> {
  return (
    await oneRow(on, Counted, sql`SELECT count(*)::int AS "consumers" FROM runplane.feed_consumers WHERE scope = ${scopeOf(scope)}::text`)
  ).consumers;
}

const Done = z.object({ done: column.int });

/** False where it is there. */
export async function insertConsumer(tx: Tx, key: ConsumerKey, place: FeedPlace): Promise<boolean> {
  takeConsumerLock(tx, key);
  const made = await maybeRow(
    tx,
    Done,
    sql`INSERT INTO runplane.feed_consumers (scope, name, tx, position)
        VALUES (${scopeOf(key)}::text, ${key.name}::text, ${String(place.tx)}::bigint, ${String(place.position)}::bigint)
        ON CONFLICT DO NOTHING RETURNING 1 AS "done"`,
  );
  return made !== undefined;
}

/** A guarded update: from this very place, to one that this store has reached. False: look why. */
export async function commitConsumer(
  on: SqlExecutor,
  key: ConsumerKey,
  { storeId, from, to }: { storeId: string; from: FeedPlace; to: FeedPlace },
): Promise<boolean> {
  const committed = await maybeRow(
    on,
    Done,
    sql`UPDATE runplane.feed_consumers SET tx = ${String(to.tx)}::bigint, position = ${String(to.position)}::bigint, seen_at = runplane.app_now(),
          moved_at = CASE WHEN (tx, position) = (${String(to.tx)}::bigint, ${String(to.position)}::bigint) THEN moved_at ELSE runplane.app_now() END
        WHERE ${ofConsumer(key)} AND (tx, position) = (${String(from.tx)}::bigint, ${String(from.position)}::bigint)
          AND ${String(to.tx)}::bigint <= runplane.feed_horizon() AND (SELECT store_id FROM runplane.store) = ${storeId}::text
        RETURNING 1 AS "done"`,
  );
  return committed !== undefined;
}

/** Puts it anywhere; the floor is held. False where there is none. */
export async function moveConsumer(tx: Tx, key: ConsumerKey, place: FeedPlace): Promise<boolean> {
  takeConsumerLock(tx, key);
  const moved = await maybeRow(
    tx,
    Done,
    sql`UPDATE runplane.feed_consumers SET tx = ${String(place.tx)}::bigint, position = ${String(place.position)}::bigint,
          seen_at = runplane.app_now(), moved_at = runplane.app_now() WHERE ${ofConsumer(key)} RETURNING 1 AS "done"`,
  );
  return moved !== undefined;
}

const Place = z.object({ storeId: column.text, tx: column.bigint, position: column.bigint });

export function removeConsumer(on: SqlExecutor, key: ConsumerKey): Promise<z.infer<typeof Place> | undefined> {
  return maybeRow(
    on,
    Place,
    sql`DELETE FROM runplane.feed_consumers WHERE ${ofConsumer(key)}
        RETURNING (SELECT store_id FROM runplane.store) AS "storeId", tx::text AS "tx", position::text AS "position"`,
  );
}

export function findConsumerPlace(on: SqlExecutor, key: ConsumerKey): Promise<z.infer<typeof Place> | undefined> {
  return maybeRow(
    on,
    Place,
    sql`SELECT (SELECT store_id FROM runplane.store) AS "storeId", tx::text AS "tx", position::text AS "position" FROM runplane.feed_consumers WHERE ${ofConsumer(key)}`,
  );
}

const ConsumerRow = z.object({
  storeId: column.text,
  scope: column.text,
  name: column.text,
  tx: column.bigint,
  position: column.bigint,
  registeredAt: column.time,
  seenAt: column.time,
  movedAt: column.time,
  seenForMs: column.int,
  isSilent: column.bool,
  isBelowFloor: column.bool,
  lagEvents: column.int,
  lagIsExact: column.bool,
  lagMs: column.int.nullable(),
});
export type ConsumerRow = z.infer<typeof ConsumerRow>;

/**
 * Consumers by scope and name, each with what lies behind its place: counted over `lagRows` rows of the outbox at most. Where none of those is its
 * tenant's, the age is that of the last one looked at, behind which its next event must lie.
 */
export function listConsumerRows(
  on: SqlExecutor,
  { scope, name, lagRows, silentMs }: { scope: string | undefined; name?: string | undefined; lagRows: number; silentMs: number },
): Promise<ConsumerRow[]> {
  return rows(
    on,
    ConsumerRow,
    sql`SELECT (SELECT store_id FROM runplane.store) AS "storeId", c.scope AS "scope", c.name AS "name", c.tx::text AS "tx", c.position::text AS "position",
          runplane.wire_time(c.registered_at) AS "registeredAt", runplane.wire_time(c.seen_at) AS "seenAt", runplane.wire_time(c.moved_at) AS "movedAt",
          greatest(runplane.ms_until(t.now, c.seen_at), 0) AS "seenForMs",
          c.seen_at <= t.now - ${String(silentMs)}::bigint * interval '1 millisecond' AS "isSilent",
          (c.tx, c.position) < (SELECT f.tx, f.position FROM runplane.outbox_floor f) AS "isBelowFloor",
          coalesce(l.events, 0) AS "lagEvents", l.scanned < ${lagRows}::int AS "lagIsExact",
          greatest(runplane.ms_until(t.now, coalesce(l.oldest, CASE WHEN l.scanned >= ${lagRows}::int THEN l.last END)), 0) AS "lagMs"
        FROM (SELECT runplane.app_now() AS now) t CROSS JOIN runplane.feed_consumers c CROSS JOIN LATERAL (
          SELECT count(*)::int AS scanned, (sum(b.events) FILTER (WHERE b.mine))::int AS events, min(b.created_at) FILTER (WHERE b.mine) AS oldest, max(b.created_at) AS last
          FROM (
            SELECT c.scope IN (${OPERATOR}::text, o.tenant_id) AS mine, o.created_at,
              CASE WHEN o.tx = c.tx THEN least(o.events, ${lastPosition} - c.position) ELSE o.events END AS events
            FROM runplane.outbox_events o
            WHERE (o.tx, o.position) >= (c.tx, coalesce(
                (SELECT max(x.position) FROM runplane.outbox_events x WHERE x.tx = c.tx AND x.position <= c.position), c.position))
              AND (o.tx, ${lastPosition}) > (c.tx, c.position) AND o.tx < (SELECT runplane.feed_horizon())
            ORDER BY o.tx, o.position LIMIT ${lagRows}::int
          ) b
        ) l
        WHERE (${scope ?? null}::text IS NULL OR c.scope = ${scope ?? null}::text) AND (${name ?? null}::text IS NULL OR c.name = ${name ?? null}::text)
        ORDER BY c.scope COLLATE "C", c.name COLLATE "C"`,
  );
}
