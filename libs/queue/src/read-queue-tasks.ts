import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  MarkQueueTasksRead,
  parseInput,
  QUEUE_COMMANDER_ROWS,
  QUEUE_COMMANDER_SCAN_ROWS,
  QUEUE_PRIORITY_MAX,
  type MarkedQueueTasks,
  type QueueAttemptList,
  type QueueCommander,
  type QueueStats,
  type QueueTask,
  type QueueTaskChanges,
  type QueueTaskList,
  type QueueTaskState,
} from '@runplane/contracts';
import { executorOf, isTx, takingLock, type At } from '@runplane/database';
import { defineChangeList, type ChangesAfter } from '@runplane/outbox';
import { z } from 'zod';
import { listAttempts, toAttempt } from './attempt.sql';
import { requireTask } from './require';
import { listChangesPage, listForCommander, listTasksPage, markTasksRead, readStats, STATS_PART, type StatsRow } from './task-list.sql';
import { toTask, type TaskKey } from './task.sql';

const rowsOf = (limit: number): number => Math.min(Math.max(limit, 1), LIST_ROWS_MAX);

/** Reads a task. Errors: TaskNotFound. */
export async function getQueueTask(at: At, key: TaskKey): Promise<QueueTask> {
  return toTask(await requireTask(executorOf(at), key));
}

const taskCursor = defineCursor(
  'queue-tasks',
  z.strictObject({ priority: z.int().min(-QUEUE_PRIORITY_MAX).max(QUEUE_PRIORITY_MAX), createdAt: cursorTime, id: identifier }),
);

export interface ListQueueTasks {
  readonly tenantId: string;
  readonly queue?: string | undefined;
  readonly state?: QueueTaskState | undefined;
  readonly readerId?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

/**
 * One page of a tenant's tasks, highest priority first, then oldest; without what the tasks are about.
 *
 * Returns   `cursor: null` at the end. The order rests on columns that never change: a page never misses or repeats a task, whatever moves meanwhile,
 *           but for one that comes into or leaves the state that the list asks for.
 * Errors    InvalidCursor.   Repeat: safe; reads only.   Source: the original's listQueueTasks, whose cursor was a version in another order.
 */
export async function listQueueTasks(
  at: At,
  { tenantId, queue, state, readerId, cursor, limit = LIST_ROWS_DEFAULT }: ListQueueTasks,
): Promise<QueueTaskList> {
  const filterHash = contentHash({ tenantId, queue: queue ?? null, state: state ?? null }).hash;
  const after = cursor === undefined ? undefined : taskCursor.decode(cursor, filterHash);
  const rowsMax = rowsOf(limit);
  const found = await listTasksPage(executorOf(at), { tenantId, queue, state, readerId }, { after, limit: rowsMax + 1 });
  const tasks = found.slice(0, rowsMax);
  const last = tasks.at(-1);
  if (found.length <= rowsMax || last === undefined) return { tasks, cursor: null };
  return { tasks, cursor: taskCursor.encode({ priority: last.priority, createdAt: last.createdAt, id: last.id }, filterHash) };
}

const listChanges = defineChangeList('queue-changes', 'taskId');

export interface ListQueueTaskChanges extends ChangesAfter {
  readonly tenantId: string;
  readonly readerId?: string | undefined;
}

/**
 * A tenant's tasks in the order of their changes, each once, as it is now: a reader that follows `cursor` sees the last version of every task that
 * changes, whatever transactions overlap or roll back (change-list.ts of libs/outbox).
 *
 * Returns   `cursor` to go on from, also when the page is empty; `more`: read on at once.
 * Errors    InvalidCursor; CursorExpired (another store, or a copy that was not rebased).
 * Repeat    safe; reads only, one statement, no lock.   Source: the original's `version > cursor`, which missed late commits.
 */
export async function listQueueTaskChanges(at: At, { tenantId, readerId, ...after }: ListQueueTaskChanges): Promise<QueueTaskChanges> {
  const on = executorOf(at);
  const { rows: tasks, cursor, more } = await listChanges(after, (wanted) => listChangesPage(on, { tenantId, readerId, ...wanted }));
  return { tasks, cursor, more };
}

const attemptCursor = defineCursor('queue-attempts', z.strictObject({ before: z.int().min(0).max(2_147_483_647) }));

/** A task's attempts, newest first. Errors: TaskNotFound, InvalidCursor. */
export async function listQueueAttempts(
  at: At,
  { tenantId, taskId, cursor, limit = LIST_ROWS_DEFAULT }: TaskKey & { cursor?: string | undefined; limit?: number | undefined },
): Promise<QueueAttemptList> {
  const on = executorOf(at);
  const { id } = await requireTask(on, { tenantId, taskId });
  const rowsMax = rowsOf(limit);
  const before = cursor === undefined ? undefined : attemptCursor.decode(cursor, id).before;
  const found = await listAttempts(on, { tenantId, taskId, before, limit: rowsMax + 1 });
  const shown = found.slice(0, rowsMax);
  const last = shown.at(-1);
  return {
    taskId,
    attempts: shown.map(toAttempt),
    cursor: found.length <= rowsMax || last === undefined ? null : attemptCursor.encode({ before: last.retryIndex }, id),
  };
}

/**
 * Notes that a reader has seen tasks as they are now.
 * Returns   the cursors; a version that the reader has seen before, and that is later, stays. `unknown`: ids that are no tasks of the tenant.
 * Locks     the reader's cursors; no task.   Errors: InvalidRequest.   Repeat: safe.
 */
export async function markQueueTasksRead(
  at: At,
  { tenantId, ...input }: { tenantId: string } & MarkQueueTasksRead,
): Promise<MarkedQueueTasks> {
  const { readerId, taskIds } = parseInput(MarkQueueTasksRead, input);
  if (isTx(at)) takingLock(at, 'readCursor', `${tenantId}/${readerId}`);
  const cursors = await markTasksRead(executorOf(at), { tenantId, readerId, taskIds });
  const known = new Set(cursors.map(({ taskId }) => taskId));
  return { cursors, unknown: [...new Set(taskIds)].filter((taskId) => !known.has(taskId)) };
}

/** Numbers of a tenant's tasks, of one queue or of all: one pass over the rows in the database. */
export async function getQueueStats(at: At, { tenantId, queue }: { tenantId: string; queue?: string | undefined }): Promise<QueueStats> {
  const found = await readStats(executorOf(at), { tenantId, queue });
  const all = found.find(({ part }) => part === STATS_PART.all);
  if (all === undefined) throw new Error('an aggregate without groups returned no row');
  const counts = (part: number, name: (row: StatsRow) => string | null): Record<string, number> =>
    Object.fromEntries(found.filter((row) => row.part === part).map((row) => [name(row) ?? '', row.n]));
  return {
    queue: queue ?? null,
    total: all.n,
    byState: counts(STATS_PART.byState, ({ state }) => state),
    byLane: counts(STATS_PART.byLane, ({ lane }) => lane),
    byProfile: counts(STATS_PART.byProfile, ({ profile }) => profile),
    oldestPendingAt: all.oldestPendingAt,
    newestVersion: all.newest,
    generatedAt: all.generatedAt,
  };
}

/** What wants a look, with the numbers: see QueueCommander. A reader's unread tasks come first. */
export async function getQueueCommander(
  at: At,
  { tenantId, queue, readerId }: { tenantId: string; queue?: string | undefined; readerId?: string | undefined },
): Promise<QueueCommander> {
  const stats = await getQueueStats(at, { tenantId, queue });
  const bounds = { limit: QUEUE_COMMANDER_ROWS, scanRows: QUEUE_COMMANDER_SCAN_ROWS };
  const tasks = await listForCommander(executorOf(at), { tenantId, queue, readerId }, bounds);
  return { queue: queue ?? null, readerId: readerId ?? null, stats, tasks, generatedAt: stats.generatedAt };
}
