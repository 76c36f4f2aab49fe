import { isFinalRun, isDomainError, type QueueTaskState, type Run } from '@runplane/contracts';
import { inTransaction, sql, type Db, type Tx } from '@runplane/database';
import { getRun } from '@runplane/runs';
import { attemptSet, listAttemptsOfEndedRuns, listEndedReservations, lockAttempts, writeAttempt, type AttemptRow } from './attempt.sql';
import { writePlaces } from './lane.sql';
import { requireLockedTask, requireTaskInLane } from './require';
import { announceQueue } from './streams';
import { endedSet, writeTask, type TaskKey } from './task.sql';

/** Of one pass. */
const ROWS_MAX = 100;

/** What a pass did; `failed`: transactions that failed, the next pass finds them again. */
export interface QueuePass {
  readonly changed: number;
  readonly failed: number;
}

/**
 * Ends attempts whose run has ended, and their tasks with them, in the run's state: completed, failed, blocked, cancelled. The end of a run itself never
 * touches a task, whose lock would come after the run's; it tells the hub, which wakes whoever hosts this.
 *
 * Locks     lanes that count the task → task → attempts; a transaction per task. The run is only read: it has ended and does not change.
 * Writes    queue_tasks, queue_attempts, queue_lanes.
 */
export async function settleAttemptsOnce(db: Db, { limit = ROWS_MAX }: { limit?: number | undefined } = {}): Promise<QueuePass> {
  return eachTaskAlone(db, await listAttemptsOfEndedRuns(db.sql, limit), settleAttempt);
}

type EndedAttempt = TaskKey & { readonly attemptId: string; readonly runId: string };

async function settleAttempt(tx: Tx, { tenantId, taskId, attemptId, runId }: EndedAttempt): Promise<boolean> {
  const key = { tenantId, taskId };
  const { task } = await requireTaskInLane(tx, key);
  const attempt = (await lockAttempts(tx, key)).find((candidate) => candidate.attemptId === attemptId);
  if (attempt?.state !== 'running' || attempt.runId !== runId) return false;
  const end = await endOfRun(tx, { tenantId, runId });
  if (end === undefined) return false;
  await writeAttempt(tx, key, attempt.retryIndex, attemptSet(end.state, end.failure));
  if (task.state !== 'running' || task.attemptId !== attemptId) return true; // the task has gone on without it
  await writePlaces(tx, task, -1);
  const lastError = end.failure === null ? null : `${end.failure.kind}${end.failure.message === null ? '' : `: ${end.failure.message}`}`;
  const cancelled = sql`, cancelled_at = runplane.app_now(), cancel_reason = ${end.failure?.message ?? 'its run was cancelled'}::text`;
  await writeTask(tx, key, sql`${endedSet(end.state, { lastError })}${end.state === 'cancelled' ? cancelled : sql``}`);
  announceQueue(tx, tenantId, task.queue); // a place in its lane is free
  return true;
}

interface RunEnd {
  readonly state: Extract<QueueTaskState, 'completed' | 'failed' | 'blocked' | 'cancelled'>;
  readonly failure: { kind: string; message: string | null } | null;
}

const RUN_REMOVED: RunEnd = {
  state: 'failed',
  failure: { kind: 'infra-failed', message: 'retention has removed the run before its end was recorded here' },
};

async function endOfRun(tx: Tx, key: { tenantId: string; runId: string }): Promise<RunEnd | undefined> {
  let run: Run;
  try {
    run = await getRun(tx, key);
  } catch (error) {
    if (isDomainError(error) && error.code === 'run_deleted') return RUN_REMOVED;
    if (isDomainError(error) && error.code === 'run_not_found') return undefined;
    throw error;
  }
  return isFinalRun(run.status) ? { state: run.status, failure: run.failure } : undefined;
}

/**
 * Ends reservations of retries that were not activated in their time: the attempt fails, `reservation-expired`, and another retry may come. The task stays
 * `failed` or `blocked`. A run that was made for it goes on or is cancelled by whoever made it.
 * Locks     task → attempts; a transaction per task.   Writes: queue_attempts.   Keeps: OWN-2.
 */
export async function expireReservationsOnce(db: Db, { limit = ROWS_MAX }: { limit?: number | undefined } = {}): Promise<QueuePass> {
  return eachTaskAlone(db, await listEndedReservations(db.sql, limit), async (tx, { tenantId, taskId, attemptId }) => {
    const key = { tenantId, taskId };
    await requireLockedTask(tx, key);
    const attempt = (await lockAttempts(tx, key)).find((candidate) => candidate.attemptId === attemptId);
    if (attempt === undefined || !isReservationOver(attempt)) return false;
    await endReservation(tx, key, attempt);
    return true;
  });
}

/** Live means that its end lies ahead. */
export const isReservationOver = ({ state, reservedForMs }: AttemptRow): boolean => state === 'reserved' && (reservedForMs ?? 0) <= 0;

export const RESERVATION_EXPIRED = 'reservation-expired';

export function endReservation(tx: Tx, key: TaskKey, { retryIndex, failureKind, failureMessage }: AttemptRow): Promise<void> {
  const message = failureKind === null ? null : `${failureKind}${failureMessage === null ? '' : `: ${failureMessage}`}`;
  return writeAttempt(tx, key, retryIndex, attemptSet('failed', { kind: RESERVATION_EXPIRED, message }));
}

/** One transaction per candidate, one after another: background work holds one connection at most, and one that fails does not hide the others. */
async function eachTaskAlone<Key extends TaskKey>(
  db: Db,
  candidates: readonly Key[],
  work: (tx: Tx, key: Key) => Promise<boolean>,
): Promise<QueuePass> {
  let changed = 0;
  let failed = 0;
  for (const key of candidates) {
    try {
      if (await inTransaction(db, (tx) => work(tx, key))) changed += 1;
    } catch (error) {
      failed += 1;
      db.options.onError(error instanceof Error ? error : new Error(String(error)), `the pass over queue task ${key.taskId}`);
    }
  }
  return { changed, failed };
}
