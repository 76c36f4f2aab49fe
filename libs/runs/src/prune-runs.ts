import { RETENTION_CHUNK_EVENTS } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { removeRun, removeRunEvents, type Removal, type RemovalResult } from './remove-run';
import { retentionPass, type RetentionPass, type RetentionReport, type TenantPass, type TenantResult } from './retention-pass';
import { countRun, listDueRuns, listUnfinishedPrunes, type RemovedRows, type RunRemoval } from './retention.sql';
import type { RunKey } from './run.sql';

/**
 * Removes ended runs that are older than their tenant's `runsDays`, with everything under them; a copy is archived and read back first. What
 * remains is a tombstone and the run's events in the feed. A run stays while a session shows it as its last, while a job of it is not
 * settled, and while somebody holds it.
 *
 * Returns   ids and numbers of rows per tenant; a dry run says the same and changes nothing.
 * Locks     one run at a time: run → commands → intents → runner jobs → reservation.   Writes: the same, run_events, outbox, run_tombstones.
 * Emits     retention-deleted, in the feed alone; before it retention-events-pruned for a run with many events.
 * Errors    TenantNotFound, InvalidRequest; what fails for one run is in the report, and does not hide the others.
 * Repeat    safe, also by several processes at once.
 * Keeps     OWN-1 (by the reservation's epoch), LOG-2 (the feed learns of it in the same transaction).   Source: docs/adr/0018-retention.md.
 */
export function pruneRunsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'runs', pass, (tenant) => pruneOfTenant(db, 'runs', tenant, tenant.policy.runsDays));
}

/**
 * Removes the events of ended runs that are older than their tenant's `eventsDays`; the runs stay. Readers of them get EventsPruned from then
 * on. The rest as pruneRunsOnce; what a pass has begun, a later one ends whatever the policy says by then. Emits: retention-events-pruned.
 */
export function pruneRunEventsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'run-events', pass, (tenant) => pruneOfTenant(db, 'run-events', tenant, tenant.policy.eventsDays));
}

const NOTHING: RemovedRows = { events: 0, commands: 0, intents: 0, runnerJobs: 0, cancelRequests: 0 };

async function pruneOfTenant(db: Db, kind: RunRemoval, pass: TenantPass, days: number | null): Promise<TenantResult> {
  const { tenantId, policy, archive, dryRun, signal, onAlive, chunkEvents = RETENTION_CHUNK_EVENTS } = pass;
  if (policy.archive && archive === undefined && days !== null) return { archiveMissing: true };
  const { runIds, next } = await listCandidates(db, kind, pass, days);
  const removal: Removal = { db, archive: policy.archive ? archive : undefined, days: days ?? 0, signal, onAlive, chunkEvents };
  const ids: string[] = [];
  const failures: { id: string; reason: string }[] = [];
  let rows: RemovedRows = NOTHING;
  for (const runId of runIds) {
    if (signal?.aborted === true) break;
    const result = dryRun ? await wouldRemove(db, kind, { tenantId, runId }) : await remove(kind, removal, { tenantId, runId });
    if (result.kind === 'failed') failures.push({ id: runId, reason: result.reason });
    if (result.kind !== 'removed') continue;
    ids.push(runId);
    rows = plus(rows, result.rows);
    pass.onRemoved?.({ tenantId, kind, id: runId });
  }
  return { ids, failures, rows: kind === 'runs' ? { runs: ids.length, ...rows } : { events: rows.events }, next, more: next !== null };
}

async function listCandidates(db: Db, kind: RunRemoval, pass: TenantPass, days: number | null) {
  const { tenantId, limit, after } = pass;
  const begun = kind === 'run-events' ? await listUnfinishedPrunes(db.sql, tenantId, limit) : [];
  if (days === null || begun.length === limit) return { runIds: begun, next: null };
  const due = await listDueRuns(db.sql, kind, { tenantId, days, limit: limit - begun.length, after: after?.get(tenantId) ?? null });
  return { runIds: [...begun, ...due.runIds], next: due.next };
}

const remove = (kind: RunRemoval, removal: Removal, run: RunKey): Promise<RemovalResult> =>
  kind === 'runs' ? removeRun(removal, run) : removeRunEvents(removal, run);

async function wouldRemove(db: Db, kind: RunRemoval, run: RunKey): Promise<RemovalResult> {
  const rows = await countRun(db.sql, run, kind);
  return rows === undefined ? { kind: 'kept' } : { kind: 'removed', rows };
}

function plus(a: RemovedRows, b: RemovedRows): RemovedRows {
  return {
    events: a.events + b.events,
    commands: a.commands + b.commands,
    intents: a.intents + b.intents,
    runnerJobs: a.runnerJobs + b.runnerJobs,
    cancelRequests: a.cancelRequests + b.cancelRequests,
  };
}
