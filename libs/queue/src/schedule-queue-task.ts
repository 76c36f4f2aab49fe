import {
  isEndedTask,
  parseInput,
  ScheduleQueueTask,
  TaskClosed,
  TaskHeld,
  TaskVersionConflict,
  type ChangedQueueTask,
} from '@runplane/contracts';
import { sql, type Tx } from '@runplane/database';
import { requireLockedTask, requireTask } from './require';
import { announceQueue } from './streams';
import { toTask, writeTask, type TaskKey } from './task.sql';

/**
 * Puts a pending task off to a time, or lets it start as soon as possible.
 *
 * Input     runAt: a time with its zone, or null; expectedVersion: of the task, where the caller minds what else has changed.
 * Locks     task.   Writes: queue_tasks.   Returns: `changed: false` when it stands so already.
 * Errors    TaskNotFound, TaskHeld (somebody works on it), TaskClosed, TaskVersionConflict, InvalidRequest.
 * Repeat    safe.
 */
export async function scheduleQueueTask(tx: Tx, { tenantId, taskId, ...input }: TaskKey & ScheduleQueueTask): Promise<ChangedQueueTask> {
  const { runAt: given, expectedVersion } = parseInput(ScheduleQueueTask, input);
  const runAt = given === null ? null : new Date(given).toISOString();
  const key = { tenantId, taskId };
  const task = await requireLockedTask(tx, key);
  const { state, version, holder, leaseRemainingMs } = task;
  if (isEndedTask(state)) throw new TaskClosed(`Queue task ${taskId} has ended (${state}).`, { taskId, state });
  if (state === 'running') throw new TaskHeld(`Queue task ${taskId} is being worked on.`, { taskId, holder, leaseRemainingMs });
  if (task.runAt === runAt && (runAt !== null || task.readyInMs === null)) return { task: toTask(task), changed: false };
  if (expectedVersion !== undefined && expectedVersion !== version)
    throw new TaskVersionConflict(`Queue task ${taskId} is at version ${version}, not ${expectedVersion}: read it again.`, {
      taskId,
      expected: expectedVersion,
      version,
    });
  await writeTask(
    tx,
    key,
    sql`run_at = ${runAt}::timestamptz, ready_at = coalesce(${runAt}::timestamptz, runplane.app_now()),
      due = coalesce(${runAt}::timestamptz <= runplane.app_now(), true)`,
  );
  announceQueue(tx, tenantId, task.queue);
  return { task: toTask(await requireTask(tx, key)), changed: true };
}
