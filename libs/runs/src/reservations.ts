import { ReservationLost, RESERVATION_LEASE_MS_DEFAULT, requireIdentifier, type JsonObject } from '@runplane/contracts';
import { executorOf, isTx, sql, type At, type Db, type Sql, type Tx } from '@runplane/database';
import {
  declareReservation,
  deleteEndedReservations,
  lockReservation,
  lockReservationKey,
  writeReservationFreed,
  writeReservationRenewed,
  writeReserved,
  type Reservation,
  type ReservationKey,
} from './reservation.sql';

// A place held for a time while the outside world is asked: reserve → act → confirm. Reserving and confirming are short transactions; nothing is
// held in the database between them but a row with owner, epoch and end (OWN-1). A crash leaves a row that ends by itself.
// Who may hold a place is decided under a lock of its key, so that for one key never more than `limit` are held, whatever overlaps.

/** How often a place may be renewed under the eyes of whoever wants it. */
const LOOKS_MAX = 8;
const FORGOTTEN_AFTER_MS = 60_000;
const NOTHING_LIVE = sql`0`;

export type ReserveOutcome =
  | { readonly kind: 'reserved'; readonly reservation: Reservation; readonly remainingMs: number }
  | {
      readonly kind: 'refused';
      readonly live: number;
      readonly reserved: number;
      /** One of those who hold a place. */
      readonly holder: string | null;
      /** When the first of the present holds ends, unless it is prolonged; null where only live things use the places up. */
      readonly retryInMs: number | null;
    };

/**
 * Takes a place under a key, for `owner`.
 *
 * Input     owner: names one attempt and is never used for another; limit: places of the key, default 1; live: an expression that counts
 *           what uses up places besides reservations; leaseMs: default 30 s; data: what a sweeper needs to resume.
 * Returns   the hold, or who stands in the way. A repeat by the same owner keeps its place and epoch, prolonged.
 * Locks     reservation (the key).   Writes: reservations.
 * Keeps     OWN-1, OWN-2, OWN-3.
 */
export async function reserve(
  tx: Tx,
  {
    owner,
    limit = 1,
    leaseMs = RESERVATION_LEASE_MS_DEFAULT,
    live = NOTHING_LIVE,
    data = {},
    ...of
  }: ReservationKey & {
    owner: string;
    limit?: number | undefined;
    leaseMs?: number | undefined;
    live?: Sql | undefined;
    data?: JsonObject | undefined;
  },
): Promise<ReserveOutcome> {
  requireIdentifier(owner, 'the owner of a reservation');
  await lockReservationKey(tx, of);
  for (let look = 1; look <= LOOKS_MAX; look += 1) {
    const { isRoom, slot, epoch, remainingMs, ...used } = await writeReserved(tx, of, { owner, limit, leaseMs, live, data });
    if (slot !== null && epoch !== null)
      return { kind: 'reserved', reservation: { ...of, slot, owner, epoch }, remainingMs: remainingMs ?? 0 };
    if (!isRoom) return { kind: 'refused', ...used };
  }
  return { kind: 'refused', live: 0, reserved: limit, holder: null, retryInMs: null };
}

/** Prolongs a hold, in one statement. Errors: ReservationLost: its lease has ended, or it was taken away. Keeps: OWN-2. */
export async function renewReservation(
  at: At,
  reservation: Reservation,
  { leaseMs = RESERVATION_LEASE_MS_DEFAULT }: { leaseMs?: number | undefined } = {},
): Promise<{ remainingMs: number }> {
  if (isTx(at)) declareReservation(at, reservation);
  const renewed = await writeReservationRenewed(isTx(at) ? at : at.lane, reservation, leaseMs);
  if (renewed === undefined) throw reservationLost(reservation);
  return renewed;
}

/** Locks a hold for the rest of the transaction: what is written besides stands only if the place was held to the end. Errors: ReservationLost. */
export async function requireReservation(tx: Tx, reservation: Reservation): Promise<void> {
  if (!(await lockReservation(tx, reservation))) throw reservationLost(reservation);
}

/**
 * Ends a hold whose act is done, and frees the place. Errors: ReservationLost: the lease ended before, or the place was taken away: undo the
 * act, or record it as what happened. Locks: reservation.
 */
export async function confirmReservation(tx: Tx, reservation: Reservation): Promise<void> {
  declareReservation(tx, reservation);
  if (!(await writeReservationFreed(tx, reservation, { live: true }))) throw reservationLost(reservation);
}

/** Gives a place back without an act. `released: false`: it was no longer held. Repeat: safe. */
export async function releaseReservation(at: At, reservation: Reservation): Promise<{ released: boolean }> {
  if (isTx(at)) declareReservation(at, reservation);
  return { released: await writeReservationFreed(executorOf(at), reservation, { live: false }) };
}

/**
 * Removes what is left of ended reservations: free places, and creations whose process died. Those of a retention stay until they are
 * resumed. One bounded statement.
 */
export async function pruneReservationsOnce(db: Db, { limit = 500 }: { limit?: number } = {}): Promise<{ changed: number }> {
  return { changed: await deleteEndedReservations(db.sql, { limit, afterMs: FORGOTTEN_AFTER_MS }) };
}

export function reservationLost({ key, slot, epoch }: Reservation): ReservationLost {
  return new ReservationLost(`Place ${slot} of ${key} is no longer held under epoch ${epoch}.`, { key, slot, epoch });
}
