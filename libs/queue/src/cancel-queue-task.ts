import { CancelQueueTask, freeText, isDomainError, parseInput, type CancelledQueueTask } from '@runplane/contracts';
import { sql, type Tx } from '@runplane/database';
import { cancelRun } from '@runplane/runs';
import { attemptSet, findAttempt, lockAttempts, toAttempt, writeAttempt } from './attempt.sql';
import { writePlaces } from './lane.sql';
import { requireTask, requireTaskInLane } from './require';
import { announceQueue } from './streams';
import { endedSet, toTask, writeTask, type TaskKey } from './task.sql';

/**
 * Cancels a task: the task and its active attempt end now, and its run is asked to stop as cancelRun does, all in one transaction. A worker that holds
 * the task is fenced: its next renewal or result is refused. A reserved retry is cancelled with its task, and so is the run that was made under
 * the reserved id.
 *
 * Input     reason: up to 500 code points are kept; graceMs, immediate: for its run, as cancelRun; requestedBy: who asked.
 * Returns   `changed: false` where it has ended already and no retry is reserved; the run, where one was to be stopped, with the request that stands.
 * Locks     lanes → task → attempts → run → run lease → commands → intents → session.
 *           Writes: queue_tasks, queue_attempts, queue_lanes, and what cancelRun writes.
 * Errors    TaskNotFound, InvalidRequest.
 * Emits     what cancelRun emits, with the target kind `task`.
 * Repeat    safe.
 * Keeps     OWN-1, END-1.   Source: the original's cancelQueueTask, three transactions.
 */
export async function cancelQueueTask(
  tx: Tx,
  { tenantId, taskId, requestedBy, ...input }: TaskKey & CancelQueueTask & { requestedBy?: string | undefined },
): Promise<CancelledQueueTask> {
  const cancel = parseInput(CancelQueueTask, input);
  const reason = freeText(cancel.reason);
  const key = { tenantId, taskId };
  const { task } = await requireTaskInLane(tx, key);
  const active = (await lockAttempts(tx, key)).find(({ terminalAt }) => terminalAt === null);
  const isOpen = task.state === 'pending' || task.state === 'running';
  if (!isOpen && active === undefined) return { task: toTask(task), attempt: null, run: null, request: null, changed: false };

  const stopped = active?.runId == null ? undefined : await stopRun(tx, { ...cancel, tenantId, runId: active.runId, taskId, requestedBy });
  if (active !== undefined)
    await writeAttempt(
      tx,
      key,
      active.retryIndex,
      sql`${attemptSet('cancelled', { kind: 'cancelled', message: reason })}, expires_at = NULL`,
    );
  await writePlaces(tx, task, -1);
  await writeTask(
    tx,
    key,
    sql`${endedSet('cancelled', { lastError: null })}, epoch = t.epoch + 1, cancelled_at = runplane.app_now(), cancel_reason = ${reason}::text`,
  );
  announceQueue(tx, tenantId, task.queue); // a place in its lane is free
  const attempt = active === undefined ? undefined : await findAttempt(tx, key, active.attemptId);
  return {
    task: toTask(await requireTask(tx, key)),
    attempt: attempt === undefined ? null : toAttempt(attempt),
    run: stopped?.run ?? null,
    request: stopped?.request ?? null,
    changed: true,
  };
}

/** A reservation names a run that may not have been made yet, and retention may have removed one: then there is nothing to stop. */
async function stopRun(tx: Tx, cancel: Parameters<typeof cancelRun>[1]): Promise<Awaited<ReturnType<typeof cancelRun>> | undefined> {
  try {
    return await cancelRun(tx, cancel);
  } catch (error) {
    if (isDomainError(error) && (error.code === 'run_not_found' || error.code === 'run_deleted')) return undefined;
    throw error;
  }
}
