import { AttemptNotFound, TaskNotFound } from '@runplane/contracts';
import { RestartTransaction, type SqlExecutor, type Tx } from '@runplane/database';
import { lockLanes, type LaneLimit } from './lane.sql';
import { findTask, lockTask, type TaskKey, type TaskRow } from './task.sql';

// Reads that throw what an absent row is called at the door. A foreign tenant's id is absent (TEN-1).

export const taskNotFound = (taskId: string): TaskNotFound => new TaskNotFound(`There is no queue task ${taskId}.`, { taskId });

export const attemptNotFound = (taskId: string, attemptId: string): AttemptNotFound =>
  new AttemptNotFound(`Queue task ${taskId} has no attempt ${attemptId}.`, { taskId, attemptId });

export async function requireTask(on: SqlExecutor, key: TaskKey): Promise<TaskRow> {
  const task = await findTask(on, key);
  if (task === undefined) throw taskNotFound(key.taskId);
  return task;
}

export async function requireLockedTask(tx: Tx, key: TaskKey): Promise<TaskRow> {
  const task = await lockTask(tx, key);
  if (task === undefined) throw taskNotFound(key.taskId);
  return task;
}

/**
 * Locks the lanes that count the task, or would, and then the task. Which lanes these are is looked at first; when that has changed before the
 * locks are held, the transaction starts over.
 */
export async function requireTaskInLane(tx: Tx, key: TaskKey): Promise<{ task: TaskRow; limits: LaneLimit[] }> {
  const peek = await requireTask(tx, key);
  const limits = await lockLanes(tx, peek);
  const task = await requireLockedTask(tx, key);
  if (task.places !== peek.places && (task.places | peek.places) !== peek.places)
    throw new RestartTransaction(`the lane of queue task ${key.taskId} has got a limit while it was being locked`);
  return { task, limits };
}
