import { RunInUse, type DeletedRun } from '@runplane/contracts';
import { type Db } from '@runplane/database';
import { RETENTION_CHUNK_EVENTS } from '@runplane/contracts';
import type { ArchiveSink } from './archive-sink';
import { absentRun } from './require';
import { removeRun } from './remove-run';
import { findRemovalVerdict, findTombstone } from './retention.sql';
import type { RunKey } from './run.sql';

/**
 * Removes an ended run with everything under it, now, as retention would by its age. What remains is a tombstone, and the run's events in the feed.
 *
 * Input     archive: where a copy goes first; without one there is no copy, whatever the tenant's policy says: whoever deletes wants it gone.
 * Returns   when it was removed; `changed: false` when that was before.
 * Locks     run → commands → intents → runner jobs → reservation.   Writes: the same, run_events, outbox, run_tombstones.
 * Errors    RunNotFound; RunInUse: it is open, its job is not settled, its session shows it (delete the session), or somebody holds it.
 * Emits     retention-deleted, in the feed alone.
 * Repeat    safe.   Source: docs/adr/0018-retention.md, docs/adr/0022-deleted-sessions.md.
 */
export async function deleteRun(
  db: Db,
  { tenantId, runId, archive, signal }: RunKey & { archive?: ArchiveSink | undefined; signal?: AbortSignal | undefined },
): Promise<DeletedRun> {
  const key = { tenantId, runId };
  const before = await findTombstone(db.sql, key);
  if (before !== undefined) return { runId, deletedAt: before.deletedAt, changed: false };
  const verdict = await findRemovalVerdict(db.sql, key);
  if (verdict === undefined) throw await absentRun(db.sql, key);
  if (verdict !== 'remove') throw inUse(runId, verdict);
  const removal = { db, archive, days: 0, signal, onAlive: undefined, chunkEvents: RETENTION_CHUNK_EVENTS };
  const result = await removeRun(removal, key);
  const tombstone = await findTombstone(db.sql, key);
  if (tombstone === undefined)
    throw result.kind === 'failed' ? new Error(`run ${runId} could not be removed: ${result.reason}`) : inUse(runId, 'held');
  return { runId, deletedAt: tombstone.deletedAt, changed: result.kind === 'removed' };
}

const WHY = {
  open: 'has not ended: cancel it first',
  'job-unsettled': 'has a job whose process may still be there: repeat the call when it is settled',
  'shown-by-session': 'is the last of its session: delete the session',
  held: 'is held by somebody who removes or fences it: repeat the call in a while',
};

function inUse(runId: string, why: keyof typeof WHY): RunInUse {
  return new RunInUse(`Run ${runId} ${WHY[why]}.`, { runId, why });
}
