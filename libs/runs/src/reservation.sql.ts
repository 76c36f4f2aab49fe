import type { JsonObject, ReservationKind } from '@runplane/contracts';
import { column, maybeRow, oneRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';

/** What places are for. Without a tenant: the operator's own, such as the capacity of a backend. */
export interface ReservationKey {
  readonly kind: ReservationKind;
  readonly tenantId: string | null;
  readonly key: string;
}

/** One hold of one place. `owner` names one attempt and is never used for another, so owner and epoch tell holds apart also after the row has gone. */
export interface Reservation extends ReservationKey {
  readonly slot: number;
  readonly owner: string;
  readonly epoch: number;
}

/** One text of tenant and key that no other pair has. */
const storedKey = ({ tenantId, key }: ReservationKey): string => JSON.stringify([tenantId, key]);
/** The same of two columns that are not null, in a statement. */
export const storedKeySql = (tenantId: Sql, key: Sql): Sql =>
  sql`('[' || to_json(${tenantId})::text || ',' || to_json(${key})::text || ']')`;
const kindOf = ({ kind }: ReservationKey): Sql => sql`${kind}::text::runplane.reservation_kind`;
const takingReservation = (tx: Tx, of: ReservationKey): void => {
  takingLock(tx, 'reservation', `${of.kind} ${storedKey(of)}`);
};
const milliseconds = (ms: number): Sql => sql`${ms}::int * interval '1 millisecond'`;
const done = z.object({ slot: column.int });

/** Makes whoever else reserves under the key wait until this transaction ends: rivals that have not committed would not be counted (FIFO of locks). */
export async function lockReservationKey(tx: Tx, of: ReservationKey): Promise<void> {
  takingReservation(tx, of);
  await tx.query(
    sql`INSERT INTO runplane.reservations AS r (kind, key, slot, tenant_id) VALUES (${kindOf(of)}, ${storedKey(of)}::text, 1, ${of.tenantId}::text)
        ON CONFLICT (kind, key, slot) DO UPDATE SET updated_at = runplane.app_now()`,
  );
}

const ReserveRow = z.object({
  live: column.int,
  reserved: column.int,
  holder: column.text.nullable(),
  retryInMs: column.int.nullable(),
  isRoom: column.bool,
  slot: column.int.nullable(),
  epoch: column.int.nullable(),
  remainingMs: column.int.nullable(),
});
export type ReserveRow = z.infer<typeof ReserveRow>;

/**
 * Takes a free place under a locked key, if what is live and what is reserved leave room; an owner that holds one already keeps it, prolonged.
 * A place whose lease has ended is free; the epoch grows with every hold. `isRoom` without a slot: its holder prolonged it at that moment, look again.
 *
 * `live`: an expression that counts what uses up places besides reservations.
 */
export function writeReserved(
  tx: Tx,
  of: ReservationKey,
  { owner, leaseMs, limit, live, data }: { owner: string; leaseMs: number; limit: number; live: Sql; data: JsonObject },
): Promise<ReserveRow> {
  takingReservation(tx, of);
  return oneRow(
    tx,
    ReserveRow,
    sql`
    WITH clock AS MATERIALIZED (SELECT runplane.app_now() AS now),
    held AS MATERIALIZED (
      SELECT r.slot, r.owner, r.expires_at FROM runplane.reservations r, clock
      WHERE r.kind = ${kindOf(of)} AND r.key = ${storedKey(of)}::text AND r.owner IS NOT NULL AND r.expires_at > clock.now
    ), others AS (SELECT * FROM held WHERE owner <> ${owner}::text),
    used AS MATERIALIZED (SELECT (${live})::int AS live, (SELECT count(*) FROM others)::int AS reserved),
    place AS MATERIALIZED (
      SELECT coalesce(
        (SELECT slot FROM held WHERE owner = ${owner}::text ORDER BY slot LIMIT 1),
        CASE WHEN live + reserved < ${limit}::int
          THEN (SELECT s FROM generate_series(1, ${limit}::int) s WHERE s NOT IN (SELECT slot FROM held) ORDER BY s LIMIT 1) END
      ) AS slot FROM used
    ), w AS (
      INSERT INTO runplane.reservations AS r (kind, key, slot, tenant_id, owner, epoch, expires_at, data, created_at, updated_at)
      SELECT ${kindOf(of)}, ${storedKey(of)}::text, place.slot, ${of.tenantId}::text, ${owner}::text, 1, clock.now + ${milliseconds(leaseMs)},
        ${JSON.stringify(data)}::jsonb, clock.now, clock.now
      FROM place, clock WHERE place.slot IS NOT NULL
      ON CONFLICT (kind, key, slot) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, data = excluded.data, updated_at = excluded.updated_at,
        epoch = CASE WHEN r.owner = excluded.owner AND r.expires_at > excluded.updated_at THEN r.epoch ELSE r.epoch + 1 END
      WHERE r.owner IS NULL OR r.owner = excluded.owner OR r.expires_at <= excluded.updated_at
      RETURNING slot, epoch, expires_at
    )
    SELECT used.live AS "live", used.reserved AS "reserved", (SELECT min(owner) FROM others) AS "holder",
      (SELECT runplane.ms_until(min(expires_at), clock.now) FROM others) AS "retryInMs", place.slot IS NOT NULL AS "isRoom",
      w.slot AS "slot", w.epoch AS "epoch", runplane.ms_until(w.expires_at, clock.now) AS "remainingMs"
    FROM used CROSS JOIN place CROSS JOIN clock LEFT JOIN w ON true`,
  );
}

/** The place as its lock shows it; `held` while owner and epoch are current. The clock is read after the lock (OWN-2). */
const lockedSql = (of: Reservation): Sql => sql`
  l AS MATERIALIZED (
    SELECT kind, key, slot, owner, epoch, expires_at FROM runplane.reservations
    WHERE kind = ${kindOf(of)} AND key = ${storedKey(of)}::text AND slot = ${of.slot}::int FOR NO KEY UPDATE
  ), judged AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM l),
  held AS MATERIALIZED (SELECT * FROM judged WHERE owner = ${of.owner}::text AND epoch = ${of.epoch}::int)`;

/** Prolongs a hold; undefined: it is over or was taken away. */
export async function writeReservationRenewed(
  on: SqlExecutor,
  of: Reservation,
  leaseMs: number,
): Promise<{ remainingMs: number } | undefined> {
  return maybeRow(
    on,
    z.object({ remainingMs: column.int }),
    sql`WITH ${lockedSql(of)}
        UPDATE runplane.reservations r SET expires_at = held.now + ${milliseconds(leaseMs)}, updated_at = held.now FROM held
        WHERE (r.kind, r.key, r.slot) = (held.kind, held.key, held.slot) AND held.expires_at > held.now
        RETURNING runplane.ms_until(r.expires_at, held.now) AS "remainingMs"`,
  );
}

/** Frees a place: `live` demands that the lease has not ended. False: it is over or was taken away. */
export async function writeReservationFreed(on: SqlExecutor, of: Reservation, { live }: { live: boolean }): Promise<boolean> {
  const freed = await rows(
    on,
    done,
    sql`WITH ${lockedSql(of)}
        UPDATE runplane.reservations r SET owner = NULL, expires_at = NULL, epoch = r.epoch + 1, updated_at = held.now FROM held
        WHERE (r.kind, r.key, r.slot) = (held.kind, held.key, held.slot) AND (held.expires_at > held.now OR NOT ${live}::bool)
        RETURNING r.slot AS "slot"`,
  );
  return freed.length === 1;
}

/** Locks a hold until the end of the transaction, so that nobody else comes to it meanwhile (OWN-3). False: it is over or was taken away. */
export async function lockReservation(tx: Tx, of: Reservation): Promise<boolean> {
  takingReservation(tx, of);
  return (await rows(tx, done, sql`WITH ${lockedSql(of)} SELECT slot AS "slot" FROM held WHERE expires_at > now`)).length === 1;
}

export function declareReservation(tx: Tx, of: ReservationKey): void {
  takingReservation(tx, of);
}

const EndedRow = z.object({
  tenantId: column.text.nullable(),
  key: column.json.pipe(z.tuple([z.string().nullable(), z.string()])),
  owner: column.text,
  epoch: column.int,
  data: column.jsonObject,
});

export interface EndedReservation extends ReservationKey {
  readonly owner: string;
  readonly epoch: number;
  readonly data: JsonObject;
}

/**
 * Holds for an act (`data.act`) whose lease has ended and that nobody has given back: what was done under them may be half done. Longest ago
 * first. The act is asked for here: those of another one, which may stand for long, must not fill the page.
 */
export async function listEndedReservations(
  on: SqlExecutor,
  { kind, act, limit }: { kind: ReservationKind; act: string; limit: number },
): Promise<EndedReservation[]> {
  const found = await rows(
    on,
    EndedRow,
    sql`SELECT tenant_id AS "tenantId", key AS "key", owner AS "owner", epoch AS "epoch", data::text AS "data" FROM runplane.reservations
        WHERE owner IS NOT NULL AND expires_at <= (SELECT runplane.app_now()) AND kind = ${kind}::text::runplane.reservation_kind
          AND data ->> 'act' = ${act}::text
        ORDER BY expires_at, key LIMIT ${limit}::int`,
  );
  return found.map(({ key: [, key], ...ended }) => ({ kind, key, ...ended }));
}

/** Removes free places, and those of creations that ended with their process, a while after. Gives how many. */
export async function deleteEndedReservations(on: SqlExecutor, { limit, afterMs }: { limit: number; afterMs: number }): Promise<number> {
  const ended = sql`(SELECT runplane.app_now() - ${milliseconds(afterMs)})`;
  const deleted = await rows(
    on,
    done,
    sql`WITH l AS MATERIALIZED (
          SELECT kind, key, slot FROM runplane.reservations
          WHERE (owner IS NULL AND updated_at <= ${ended}) OR (kind = 'runner-create' AND expires_at <= ${ended})
          LIMIT ${limit}::int FOR UPDATE SKIP LOCKED
        )
        DELETE FROM runplane.reservations r USING l WHERE (r.kind, r.key, r.slot) = (l.kind, l.key, l.slot) RETURNING r.slot AS "slot"`,
  );
  return deleted.length;
}

/** Keeps a place for a while after its act has failed, so that nobody tries again at once, and notes why. Owner and epoch stay. */
export async function writeReservationHeldBack(
  on: SqlExecutor,
  of: Reservation,
  { leaseMs, data }: { leaseMs: number; data: JsonObject },
): Promise<void> {
  await rows(
    on,
    done,
    sql`WITH ${lockedSql(of)}
        UPDATE runplane.reservations r SET expires_at = held.now + ${milliseconds(leaseMs)}, updated_at = held.now, data = ${JSON.stringify(data)}::jsonb
        FROM held WHERE (r.kind, r.key, r.slot) = (held.kind, held.key, held.slot) RETURNING r.slot AS "slot"`,
  );
}

/** What the last holder of a place has left with it. */
export async function findReservationData(on: SqlExecutor, of: ReservationKey & { slot: number }): Promise<JsonObject> {
  const found = await maybeRow(
    on,
    z.object({ data: column.jsonObject }),
    sql`SELECT data::text AS "data" FROM runplane.reservations WHERE kind = ${kindOf(of)} AND key = ${storedKey(of)}::text AND slot = ${of.slot}::int`,
  );
  return found?.data ?? {};
}
