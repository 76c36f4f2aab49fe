import { setTimeout as sleep } from 'node:timers/promises';
import {
  CapacityReached,
  HeldSlot,
  isDomainError,
  newId,
  parseInput,
  RenewRunnerSlot,
  ReserveRunnerSlot,
  type RunnerSlot,
} from '@runplane/contracts';
import { inTransaction, remainingSince, type At, type Db, type Tx } from '@runplane/database';
import type { RunKey } from './run.sql';
import type { Reservation } from './reservation.sql';
import { confirmReservation, releaseReservation, renewReservation, reservationLost, reserve, type ReserveOutcome } from './reservations';
import { countLiveRuns } from './runner-slot.sql';

// The create fence: for one key at most `limit` runners live or are being made, over all processes. Reserve, make the runner with no connection
// held, confirm. With the default limit of 1, and no profile, it is one creation at a time.

/** The operator's own keys have no tenant; those that come by HTTP are their tenant's. */
export interface SlotScope {
  readonly tenantId?: string | null | undefined;
}

const hold = ({ tenantId = null }: SlotScope, { key, slot, owner, epoch }: HeldSlot): Reservation => ({
  kind: 'runner-create',
  tenantId,
  key,
  slot,
  owner,
  epoch,
});

/**
 * Asks for the right to make a runner.
 *
 * Input     key; limit: 1 by default; owner: one attempt, never used for another; backendProfile: its live runs count too (of the tenant, if
 *           there is one); runId: not counted against itself.
 * Returns   the place. A repeat by the same owner keeps it, prolonged.
 * Locks     reservation (the key).   Writes: reservations.
 * Errors    CapacityReached (with what is live and reserved, and when to come again), InvalidRequest, InvalidIdentifier.
 * Keeps     OWN-1, OWN-2, OWN-3.   Source: the original's withRunnerCreateFence.
 */
export async function reserveRunnerSlot(tx: Tx, { tenantId = null, ...input }: SlotScope & ReserveRunnerSlot): Promise<RunnerSlot> {
  const { key, limit, owner, leaseMs, backendProfile, runId } = parseInput(ReserveRunnerSlot, input);
  const except = runId === undefined || tenantId === null ? undefined : { tenantId, runId };
  const live = backendProfile === undefined ? undefined : countLiveRuns({ backendProfile, tenantId, except });
  const outcome = await reserve(tx, { kind: 'runner-create', tenantId, key, limit, owner, leaseMs, live });
  if (outcome.kind === 'reserved') {
    const { slot, epoch } = outcome.reservation;
    return { key, slot, owner, epoch, remainingMs: outcome.remainingMs };
  }
  throw new CapacityReached(`All ${limit} places of ${key} are taken: ${outcome.live} by live runners, ${outcome.reserved} by creations.`, {
    key,
    limit,
    live: outcome.live,
    reserved: outcome.reserved,
    retryInMs: outcome.retryInMs,
  });
}

/** Asks for a place of a backend's own capacity, for a run of whichever tenant. Locks and keeps: as reserveRunnerSlot. */
export function reserveBackendSlot(
  tx: Tx,
  {
    backendProfile,
    maxRunners,
    owner,
    leaseMs,
    run,
  }: { backendProfile: string; maxRunners: number; owner: string; leaseMs: number; run: RunKey },
): Promise<ReserveOutcome> {
  const live = countLiveRuns({ backendProfile, tenantId: null, except: run });
  return reserve(tx, { kind: 'runner-create', tenantId: null, key: backendProfile, limit: maxRunners, owner, leaseMs, live });
}

/** Prolongs a place while the runner is being made. Errors: ReservationLost, InvalidRequest. */
export async function renewRunnerSlot(at: At, { tenantId, ...input }: SlotScope & RenewRunnerSlot): Promise<{ remainingMs: number }> {
  const { leaseMs, ...held } = parseInput(RenewRunnerSlot, input);
  return renewReservation(at, hold({ tenantId }, held), { leaseMs });
}

/**
 * Ends the creation: from now on the runner counts by its run, or not at all. Errors: ReservationLost: the lease ended before, and somebody
 * else may have the place: the runner is one too many. Locks: reservation.
 */
export async function confirmRunnerSlot(tx: Tx, { tenantId, ...input }: SlotScope & HeldSlot): Promise<void> {
  return confirmReservation(tx, hold({ tenantId }, parseInput(HeldSlot, input)));
}

/** Gives a place back: nothing was made. Repeat: safe. */
export async function releaseRunnerSlot(at: At, { tenantId, ...input }: SlotScope & HeldSlot): Promise<{ released: boolean }> {
  return releaseReservation(at, hold({ tenantId }, parseInput(HeldSlot, input)));
}

export interface WithRunnerSlot<T> extends SlotScope, Omit<ReserveRunnerSlot, 'owner'> {
  /** Ends the call early; passed on to the act. */
  readonly signal?: AbortSignal | undefined;
  /** Written in the transaction that confirms, or not at all. */
  readonly settle?: ((tx: Tx, made: T) => Promise<void>) | undefined;
}

/**
 * Reserves a place, makes the runner by `act` with no connection held, and confirms. The place is renewed while `act` works; when it is lost
 * (the database did not answer for a whole lease, or somebody took it), `act`'s signal says so, and the confirmation fails. An act that
 * throws gives the place back. A process that dies leaves a place that ends after its lease.
 *
 * Errors    CapacityReached (act was not called), ReservationLost (act was called: its runner is one too many), what `act` or `settle` throw.
 */
export async function withRunnerSlot<T>(
  db: Db,
  { signal, settle, tenantId, ...wanted }: WithRunnerSlot<T>,
  act: (place: { readonly slot: RunnerSlot; readonly signal: AbortSignal }) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const owner = newId('slot');
  const askedAt = performance.now();
  const slot = await inTransaction(db, (tx) => reserveRunnerSlot(tx, { ...wanted, tenantId, owner }));
  const { leaseMs } = parseInput(ReserveRunnerSlot, { ...wanted, owner });
  const held = hold({ tenantId }, slot);
  const keeper = keepHeld(db, held, { leaseMs, remainingMs: remainingSince(slot.remainingMs, askedAt) });
  try {
    const signals = signal === undefined ? [keeper.lost] : [keeper.lost, signal];
    const made = await act({ slot, signal: AbortSignal.any(signals) });
    await keeper.stop();
    await inTransaction(db, async (tx) => {
      await settle?.(tx, made); // its rows rank below the reservation
      await confirmReservation(tx, held);
    });
    return made;
  } catch (error) {
    await keeper.stop();
    await releaseReservation(db, held).catch(() => undefined); // it ends by itself; the first error is the caller's
    throw error;
  }
}

/** Renews a hold every third of its lease until stopped; `remainingMs` from now. `lost` is aborted when it is taken away, or when no renewal came through in time. */
export function keepHeld(
  db: Db,
  held: Reservation,
  { leaseMs, remainingMs }: { leaseMs: number; remainingMs: number },
): { readonly lost: AbortSignal; stop(): Promise<void> } {
  const lost = new AbortController();
  const stopped = new AbortController();
  const lose = (): void => {
    lost.abort(reservationLost(held));
  };
  let end = setTimeout(lose, remainingMs).unref(); // also while a renewal hangs
  const renewals = (async () => {
    while (!stopped.signal.aborted && !lost.signal.aborted) {
      await sleep(leaseMs / 3, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      const askedAt = performance.now();
      try {
        const renewed = await renewReservation(db, held, { leaseMs });
        clearTimeout(end);
        end = setTimeout(lose, remainingSince(renewed.remainingMs, askedAt)).unref();
      } catch (error) {
        if (isDomainError(error) && error.code === 'reservation_lost') lose();
      }
    }
  })();
  return {
    lost: lost.signal,
    async stop() {
      stopped.abort();
      await renewals;
      clearTimeout(end);
    },
  };
}
