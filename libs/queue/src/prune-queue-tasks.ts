import { RETENTION_SCAN_ROWS_MAX } from '@runplane/contracts';
import { compareC, type Db } from '@runplane/database';
import {
  archiveTask,
  retentionPass,
  type ArchiveSink,
  type RetentionPass,
  type RetentionReport,
  type TenantPass,
  type TenantResult,
} from '@runplane/runs';
import { deleteTasks, listByLastChange, listTaskTexts, type DueTask } from './prune-task.sql';
import type { TaskKey } from './task.sql';

/**
 * Removes ended tasks that are older than their tenant's `queueTasksDays`, with their attempts and read marks; where the tenant wants copies, each is
 * archived and read back first. A task stays while a retry of it is reserved. Runs of its attempts have an age of their own.
 *
 * Returns   ids and numbers of rows per tenant; a dry run says the same and changes nothing.
 * Locks     tasks, SKIP LOCKED → attempts and read marks, one statement per tenant; nothing while copies are written.
 * Writes    queue_tasks, queue_attempts, queue_task_read_cursors. Emits nothing: the id is unknown from then on, and the list of changes skips it.
 * Errors    TenantNotFound, InvalidRequest; what fails for one task is in the report, and does not hide the others.
 * Repeat    safe, also by several processes at once: a task that has changed since it was looked at stays.   Source: docs/adr/0018-retention.md.
 */
export function pruneQueueTasksOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'queue-tasks', pass, (tenant) => pruneOfTenant(db, tenant, tenant.policy.queueTasksDays));
}

async function pruneOfTenant(db: Db, pass: TenantPass, days: number | null): Promise<TenantResult> {
  if (days === null) return {};
  const { tenantId, policy, archive, dryRun } = pass;
  if (policy.archive && archive === undefined) return { archiveMissing: true };
  const { due, next } = await findDue(db, pass, days);
  const { copied, failures } = await copies(db, due, dryRun || !policy.archive ? undefined : archive, pass);
  const gone = dryRun || copied.length === 0 ? copied : await deleteTasks(db.sql, { tenantId, days, tasks: copied });
  const ids = gone.map(({ id }) => id).sort(compareC);
  for (const id of ids) pass.onRemoved?.({ tenantId, kind: 'queue-tasks', id });
  const attempts = gone.reduce((sum, task) => sum + task.attempts, 0);
  return { ids, failures, rows: { queueTasks: ids.length, attempts }, next, more: next !== null };
}

const PAGE_ROWS = 500;

/** Due tasks from where the last pass has come to; `next`: where to look further. What stays is not looked at by every pass, so a look has a bound. */
async function findDue(
  db: Db,
  { tenantId, limit, after }: TenantPass,
  days: number,
): Promise<{ due: DueTask[]; next: { at: string; id: string } | null }> {
  const due: DueTask[] = [];
  let place = after?.get(tenantId) ?? null;
  for (let looked = 0; looked < RETENTION_SCAN_ROWS_MAX; looked += PAGE_ROWS) {
    const page = await listByLastChange(db.sql, { tenantId, days, after: place, limit: PAGE_ROWS });
    for (const task of page) {
      place = { at: task.at, id: task.id };
      if (task.isDue) due.push(task);
      if (due.length === limit) return { due, next: place };
    }
    if (page.length < PAGE_ROWS || page.at(-1)?.isOld !== true) return { due, next: null };
  }
  return { due, next: place };
}

/** Writes a copy of each; those whose copy has failed, or that were not reached, are left out. Without an archive all go as they are. */
async function copies(
  db: Db,
  due: readonly DueTask[],
  archive: ArchiveSink | undefined,
  { tenantId, signal, onAlive }: TenantPass,
): Promise<{ copied: readonly DueTask[]; failures: { id: string; reason: string }[] }> {
  const failures: { id: string; reason: string }[] = [];
  if (archive === undefined) return { copied: due, failures };
  const copied: DueTask[] = [];
  for (const task of due) {
    if (signal?.aborted === true) break;
    onAlive?.();
    try {
      await archiveTask(archive, { tenantId, taskId: task.id, attempts: task.attempts, rows: rowsOf(db, { tenantId, taskId: task.id }) });
      copied.push(task);
    } catch (error) {
      failures.push({ id: task.id, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { copied, failures };
}

async function* rowsOf(db: Db, task: TaskKey): AsyncGenerator<{ kind: 'task' | 'attempt'; row: string }> {
  for (const { row } of await listTaskTexts(db.sql, task, 'task')) yield { kind: 'task', row };
  for (let attempt = -1; ;) {
    const page = await listTaskTexts(db.sql, task, { attempt });
    for (const { row } of page) yield { kind: 'attempt', row };
    const last = page.at(-1);
    if (last === undefined) return;
    attempt = last.place;
  }
}
