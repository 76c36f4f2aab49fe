import type { SqlExecutor, Tx } from '@runplane/database';
import { deleteHeld, freeKey, lockShards } from './operate.sql';
import {
  findUndelivered,
  isStillParked,
  listWaitingEvents,
  waitingPlaceOf,
  type ParkedEventKey,
  type UndeliveredEvent,
  type WaitingPlace,
} from './parked-event.sql';

export type { ParkedEventKey, UndeliveredEvent, WaitingPlace };

export interface ParkedEvent extends ParkedEventKey {
  readonly tenantId: string;
  /** How long it has waited. */
  readonly heldForMs: number;
}

/** Events of one look: of those that wait, most stand behind the one at which their key is parked. */
const LOOK_ROWS = 2_000;

/**
 * Events of enabled sinks at which keys are parked, and that have waited for at least so many days; of all tenants, or of one. `next`: from where
 * to look further, null at the end. No lock.
 */
export async function listParkedEvents(
  on: SqlExecutor,
  {
    tenantId,
    days,
    after,
    rowsMax = LOOK_ROWS,
  }: { tenantId: string | undefined; days: number; after: WaitingPlace | null; rowsMax?: number },
): Promise<{ events: ParkedEvent[]; next: WaitingPlace | null }> {
  const found = await listWaitingEvents(on, { tenantId, days, after, limit: rowsMax });
  const last = found.at(-1);
  return {
    events: found
      .filter(({ isParked }) => isParked)
      .map(({ sink, shard, key, tenantId: of, tx, position, heldForMs }) => ({
        sink,
        shard,
        key,
        tenantId: of,
        place: { tx, position },
        heldForMs,
      })),
    next: last === undefined || found.length < rowsMax ? null : waitingPlaceOf(last),
  };
}

/** What a copy of it is made of; undefined where it is not parked any more, or erased. No lock. */
export const readParkedEvent = (on: SqlExecutor, parked: ParkedEventKey): Promise<UndeliveredEvent | undefined> =>
  findUndelivered(on, parked);

/**
 * Gives up the event at which a key is parked, as an operator's skip does: it is not sent to this sink, and the next one is tried at once. False
 * where it is not parked any more, or has not waited for so many days.
 *
 * Input     seen: that readParkedEvent has found it. One that it has not, and that is there, was being tried at that moment: it is not given up unseen.
 * Locks     outbox shard.   Writes: outbox_held, outbox_blocked_keys (the row stays until the shard's owner has sent what is held).
 * Keeps     RELAY-1: a pass under way settles before it, or finds that the key has changed.   Source: docs/adr/0031.
 */
export async function dropParkedEvent(tx: Tx, parked: ParkedEventKey, { days, seen }: { days: number; seen: boolean }): Promise<boolean> {
  const { sink, shard, key, place } = parked;
  await lockShards(tx, sink, [shard]);
  if (!(await isStillParked(tx, parked, days))) return false;
  if (!seen && (await findUndelivered(tx, parked)) !== undefined) return false;
  await deleteHeld(tx, { sink, shard, key }, place);
  await freeKey(tx, { sink, shard, key });
  tx.changed('feed');
  return true;
}
