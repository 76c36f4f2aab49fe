import {
  freeText,
  isDomainError,
  newId,
  redactError,
  RETENTION_BACKOFF_MS_MAX,
  RETENTION_BACKOFF_MS_MIN,
  RETENTION_LEASE_MS,
} from '@runplane/contracts';
import { backOffMs, inTransaction, type Db, type Tx } from '@runplane/database';
import type { ArchiveSink } from './archive-sink';
import { archiveRun, RunChanged, type Archived, type ArchiveScope } from './run-archive';
import { findStoredRun, type StoredRun } from './run-archive.sql';
import { appendServerEvents, findLogHead } from './run-event.sql';
import {
  deleteEventChunk,
  deleteRun,
  eventsPrunedSet,
  insertTombstone,
  judgeRemoval,
  type RemovedRows,
  type RunRemoval,
} from './retention.sql';
import { findReservationData, writeReservationHeldBack, type Reservation } from './reservation.sql';
import { confirmReservation, releaseReservation, renewReservation, requireReservation, reserve } from './reservations';
import { lockRun, type RunKey } from './run.sql';
import { eventsPrunedEvent, runDeletedEvent } from './server-events';

// How a run, or its events, leaves the store: reserve → archive and read back → remove. The reservation keeps others away; nothing is locked while
// the archive is written. The removal is judged again under the run's lock, by the reservation's epoch, the age, and whether the run is still what
// was archived. Many events go in several transactions: the first tells it and makes readers refuse, the others remove.
// A crash between any two steps leaves either all of it, or a removal that a later pass brings to its end.

export interface Removal {
  readonly db: Db;
  /** Absent: the tenant wants no copies. */
  readonly archive: ArchiveSink | undefined;
  readonly days: number;
  readonly signal: AbortSignal | undefined;
  readonly onAlive: (() => void) | undefined;
  readonly chunkEvents: number;
}

export type RemovalResult =
  | { readonly kind: 'removed'; readonly rows: RemovedRows }
  /** It is held, or must stay, or has changed since it was found: a later pass looks again. */
  | { readonly kind: 'kept' }
  /** Noted with a back-off. */
  | { readonly kind: 'failed'; readonly reason: string };

/** It must not be removed after all. */
class Kept extends Error {}

/** Removes an ended run with everything under it. Locks: run → commands → intents → runner jobs → reservation. Emits: retention-deleted. */
export function removeRun(removal: Removal, run: RunKey): Promise<RemovalResult> {
  return underReservation(removal, run, (work) => removeWhole(removal, work));
}

/** Removes the events of an ended run; the run stays. Locks: run → reservation, per transaction. Emits: retention-events-pruned. */
export function removeRunEvents(removal: Removal, run: RunKey): Promise<RemovalResult> {
  return underReservation(removal, run, async (work) => {
    const events = await removeEvents(removal, work, await requireStored(removal.db, run), { thenConfirm: true });
    return { events, commands: 0, intents: 0, runnerJobs: 0, cancelRequests: 0 };
  });
}

/** One reserved run and the check that it still is. */
interface Work extends RunKey {
  readonly hold: Reservation;
  /** Throws when the pass is to end or the reservation is lost; prolongs it in time. */
  readonly alive: () => Promise<void>;
}

async function underReservation(removal: Removal, run: RunKey, work: (reserved: Work) => Promise<RemovedRows>): Promise<RemovalResult> {
  const { db, signal } = removal;
  const place = { kind: 'retention', tenantId: run.tenantId, key: run.runId, slot: 1 } as const;
  const before = await findReservationData(db.sql, place);
  const failuresBefore = typeof before['failures'] === 'number' ? before['failures'] : 0;
  const reserved = await inTransaction(db, (tx) =>
    reserve(tx, { ...place, owner: newId('removal'), leaseMs: RETENTION_LEASE_MS, data: { act: 'remove', failures: failuresBefore } }),
  );
  if (reserved.kind === 'refused') return { kind: 'kept' };
  const hold = reserved.reservation;
  try {
    const rows = await work({ ...run, hold, alive: keepAlive(removal, hold) });
    return { kind: 'removed', rows };
  } catch (error) {
    if (isDomainError(error) && error.code === 'reservation_lost') return { kind: 'kept' };
    if (error instanceof Kept || error instanceof RunChanged || signal?.aborted === true) {
      await releaseReservation(db, hold);
      return { kind: 'kept' };
    }
    const reason = freeText(redactError(error));
    db.options.onError(error instanceof Error ? error : new Error(reason), `the removal of run ${run.runId}`);
    await holdBack(db, hold, failuresBefore + 1, reason);
    return { kind: 'failed', reason };
  }
}

/** Nobody tries again before the back-off is over. Without the database the reservation ends by itself. */
async function holdBack(db: Db, hold: Reservation, failures: number, lastError: string): Promise<void> {
  const leaseMs = backOffMs(failures, { baseMs: RETENTION_BACKOFF_MS_MIN, maxMs: RETENTION_BACKOFF_MS_MAX });
  await writeReservationHeldBack(db.sql, hold, { leaseMs, data: { act: 'remove', failures, lastError } }).catch((error: unknown) => {
    if (!isDomainError(error)) throw error;
  });
}

function keepAlive({ db, signal, onAlive }: Removal, hold: Reservation): () => Promise<void> {
  let renewedAt = performance.now();
  return async () => {
    signal?.throwIfAborted();
    onAlive?.();
    const now = performance.now();
    if (now - renewedAt < RETENTION_LEASE_MS / 3) return;
    await renewReservation(db, hold, { leaseMs: RETENTION_LEASE_MS });
    renewedAt = now;
  };
}

async function requireStored(db: Db, run: RunKey): Promise<StoredRun> {
  const stored = await findStoredRun(db.sql, run);
  if (stored === undefined) throw new Kept();
  return stored;
}

async function removeWhole(removal: Removal, work: Work): Promise<RemovedRows> {
  const { db } = removal;
  let stored = await requireStored(db, work);
  const events = eventsOf(stored);
  if (stored.prunedThrough !== null || events > removal.chunkEvents) {
    await removeEvents(removal, work, stored, { thenConfirm: false });
    stored = await requireStored(db, work);
  }
  const archived = await archive(removal, work, stored, 'run');
  const rows = await inTransaction(db, (tx) => deleteWhole(tx, { work, stored, archived, days: removal.days }));
  return { ...rows, events };
}

const eventsOf = ({ firstEventSeq, lastEventSeq }: StoredRun): number => (firstEventSeq === null ? 0 : lastEventSeq - firstEventSeq + 1);

function archive(
  { db, archive: sink }: Removal,
  { tenantId, runId, alive }: Work,
  stored: StoredRun,
  scope: ArchiveScope,
): Promise<Archived | null> {
  if (sink === undefined) return Promise.resolve(null);
  return archiveRun(db.sql, sink, { tenantId, runId, stored, scope, alive });
}

interface Confirmed {
  readonly work: Work;
  readonly stored: StoredRun;
  readonly archived: Archived | null;
  readonly days: number;
}

/** Locks the run and sees whether what was decided without a lock still holds. */
async function confirm(tx: Tx, kind: RunRemoval, { work, stored, days }: Confirmed): Promise<void> {
  if ((await lockRun(tx, work)) === undefined) throw new Kept();
  if ((await judgeRemoval(tx, work, { kind, days })) !== 'remove') throw new Kept();
  const now = await findStoredRun(tx, work);
  if (now?.stamp !== stored.stamp) throw new RunChanged();
}

async function deleteWhole(tx: Tx, confirmed: Confirmed): Promise<RemovedRows> {
  const { work, stored, archived } = confirmed;
  const { tenantId, runId, hold } = work;
  await confirm(tx, 'runs', confirmed);
  const { lastSeq } = await appendServerEvents(tx, work, [runDeletedEvent({ ...stored, archived })]);
  const rows = await deleteRun(tx, work);
  await insertTombstone(tx, { tenantId, runId, ...stored, lastEventSeq: lastSeq, archive: archived });
  await confirmReservation(tx, hold);
  return rows;
}

/** Returns how many events there were to remove when it began. */
async function removeEvents(removal: Removal, work: Work, stored: StoredRun, { thenConfirm }: { thenConfirm: boolean }): Promise<number> {
  const { db, days, chunkEvents } = removal;
  if (stored.eventsPrunedAt === null) {
    const archived = await archive(removal, work, stored, 'events');
    await inTransaction(db, (tx) => tellPruned(tx, { work, stored, archived, days }));
  }
  for (let afterSeq: number | null = 0; afterSeq !== null;) {
    await work.alive();
    afterSeq = await inTransaction(db, (tx) => removeChunk(tx, work, { afterSeq: afterSeq ?? 0, limit: chunkEvents, thenConfirm }));
  }
  if (stored.eventsPrunedAt === null) return eventsOf(stored);
  return stored.firstEventSeq === null || stored.prunedThrough === null ? 0 : stored.prunedThrough - stored.firstEventSeq + 1;
}

/** From now on readers are refused, and the feed knows. The event stands in the log, behind everything that goes. */
async function tellPruned(tx: Tx, confirmed: Confirmed): Promise<void> {
  const { work, stored, archived } = confirmed;
  await confirm(tx, 'run-events', confirmed);
  const terminalSeq = (await findLogHead(tx, work))?.terminalSeq ?? null;
  if (terminalSeq === null) throw new Error(`the log of run ${work.runId} does not tell its end`);
  await appendServerEvents(tx, work, [eventsPrunedEvent({ ...stored, terminalSeq, archived })], eventsPrunedSet);
  await requireReservation(tx, work.hold);
}

/** `thenConfirm`: with the last of them the reservation has done its work. */
async function removeChunk(
  tx: Tx,
  work: Work,
  { thenConfirm, ...chunk }: { afterSeq: number; limit: number; thenConfirm: boolean },
): Promise<number | null> {
  if ((await lockRun(tx, work)) === undefined) throw new Kept();
  await requireReservation(tx, work.hold);
  const { lastSeq } = await deleteEventChunk(tx, work, chunk);
  if (lastSeq === null && thenConfirm) await confirmReservation(tx, work.hold);
  return lastSeq;
}
