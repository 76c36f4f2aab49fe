import { freeText } from '@runplane/contracts';
import { inTransaction, type Db, type Tx } from '@runplane/database';
import { dropParkedEvent, listParkedEvents, readParkedEvent, type ParkedEvent, type UndeliveredEvent } from '@runplane/outbox';
import { appendAsServer, lockHead } from '@runplane/sessions';
import { retentionPass, type RetentionPass, type RetentionReport, type TenantPass, type TenantResult } from './retention-pass';
import { archiveParkedEvent, type Archived } from './run-archive';
import { appendServerEvents } from './run-event.sql';
import { lockRun } from './run.sql';
import { RELAY_EVENT_DROPPED, relayEventDropped } from './server-events';

/** No tenant's policy is shorter, so that one look serves all of them. */
const DAYS_MIN = 1;
const DAY_MS = 86_400_000;
/** Under which `next` of the report remembers the look: it goes over all tenants. */
const ALL_TENANTS = '*';
const SESSION_EVENT = `session/${RELAY_EVENT_DROPPED}`;
/** Told of once: no event tells of one of these. The last one is of a life that is over; the id may have another. */
const NOT_TOLD: readonly (string | null)[] = [RELAY_EVENT_DROPPED, SESSION_EVENT, 'session/deleted'];

/**
 * Gives up events that a sink does not take: those at which a key is parked and that have waited for longer than their tenant's `parkedDays`
 * (30 unless it says otherwise). Until then they hold back the retention of the outbox. Where the tenant wants copies, each is archived and read
 * back first. What stands behind it in its key is tried at once.
 *
 * Returns   ids `<sink>/<event id>` per tenant; a dry run says the same and changes nothing.
 * Locks     a transaction per event: run, or session head → outbox shard. Nothing while a copy is written.
 * Emits     backend_status with the phase relay-event-dropped in the run's log, session/relay-event-dropped in the session's, unless that is gone or
 *           the event told of the same: a sink that refuses all of a key must not make it grow for ever.
 * Errors    TenantNotFound, InvalidRequest; what fails for one event is in the report, and does not hide the others.
 * Repeat    safe, at any number of processes: an event that is not parked any more stays.   Keeps: RELAY-1, LOG-2.   Source: docs/adr/0031.
 */
export async function pruneParkedEventsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  const { tenantId, after } = pass;
  const look = { tenantId, days: pass.policy?.parkedDays ?? DAYS_MIN, after: after?.get(ALL_TENANTS) ?? null };
  const { events, next } = await listParkedEvents(db.sql, look);
  const among = [...new Set(events.map((event) => event.tenantId))].sort();
  const report = await retentionPass(db, 'parked-events', pass, (tenant) => pruneOfTenant(db, tenant, events), among);
  return { ...report, next: new Map(next === null ? [] : [[ALL_TENANTS, next]]) };
}

async function pruneOfTenant(db: Db, pass: TenantPass, events: readonly ParkedEvent[]): Promise<TenantResult> {
  const { tenantId, policy, archive, limit, dryRun, signal, onAlive, onRemoved } = pass;
  const days = policy.parkedDays;
  if (days === null) return {};
  const due = events.filter((event) => event.tenantId === tenantId && event.heldForMs >= days * DAY_MS);
  if (due.length === 0) return {};
  if (policy.archive && archive === undefined) return { archiveMissing: true };
  const ids: string[] = [];
  const failures: { id: string; reason: string }[] = [];
  for (const parked of due.slice(0, limit)) {
    if (signal?.aborted === true) break;
    onAlive?.();
    let id = `${parked.sink}/${parked.place.tx}.${parked.place.position}`;
    try {
      const event = await readParkedEvent(db.sql, parked);
      if (event !== undefined) id = `${parked.sink}/${event.eventId}`;
      if (!dryRun && !(await giveUp(db, parked, { event, days, archive: policy.archive ? archive : undefined }))) continue;
      ids.push(id);
      onRemoved?.({ tenantId, kind: 'parked-events', id });
    } catch (error) {
      failures.push({ id, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { ids, failures, rows: { parkedEvents: ids.length }, more: due.length > limit };
}

async function giveUp(
  db: Db,
  parked: ParkedEvent,
  { event, days, archive }: { event: UndeliveredEvent | undefined; days: number; archive: TenantPass['archive'] },
): Promise<boolean> {
  const { tenantId, sink } = parked;
  const archived =
    archive === undefined || event === undefined
      ? null
      : await archiveParkedEvent(archive, { tenantId, sink, eventId: event.eventId, row: event.row });
  return inTransaction(db, async (tx) => {
    const tell = event === undefined ? undefined : await telling(tx, parked, event, archived);
    if (!(await dropParkedEvent(tx, parked, { days, seen: event !== undefined }))) return false;
    await tell?.();
    return true;
  });
}

/** Locks the log that the event is of, and returns what tells it; undefined where nobody can be told, or has been. */
async function telling(
  tx: Tx,
  { tenantId, sink }: ParkedEvent,
  event: UndeliveredEvent,
  archived: Archived | null,
): Promise<(() => Promise<unknown>) | undefined> {
  const { stream, streamId, sequence, type, phase, eventId, parkedAt, reason, lastError } = event;
  if (NOT_TOLD.includes(phase) || NOT_TOLD.includes(type)) return undefined;
  const archive = archived === null ? null : { name: archived.key, sha256: archived.sha256 };
  const facts = { sink, eventId, sequence, type, reason, message: lastError === null ? null : freeText(lastError), parkedAt, archive };
  if (stream === 'run') {
    const run = { tenantId, runId: streamId };
    if ((await lockRun(tx, run)) === undefined) return undefined;
    return () => appendServerEvents(tx, run, [relayEventDropped(facts)]);
  }
  const session = { tenantId, sessionId: streamId };
  const head = await lockHead(tx, session);
  if (head === undefined || head.deletedAt !== null || head.copying) return undefined;
  return () => appendAsServer(tx, session, { events: [{ type: SESSION_EVENT, data: facts }] });
}
