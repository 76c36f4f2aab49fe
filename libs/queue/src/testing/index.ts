import { randomUUID } from 'node:crypto';
import { CLAIM_LEASE_MS_MAX, type ClaimedQueueTask, type CreateQueueTask, type QueueTask } from '@runplane/contracts';
import { sql, type Db } from '@runplane/database';
import { TENANT } from '@runplane/runs/testing';
import { claimQueueTasks, type ClaimTasksInput } from '../claim-queue-tasks';
import { createQueueTask, createQueueTasks } from '../create-queue-tasks';

export { aClaimedSubmission, aKind, aSubmission, passSubmissionTime } from './submissions';

// Builders for tests: each fills what the state requires, a test sets only what it is about.

export const newQueueTask = (over: Partial<CreateQueueTask> = {}): CreateQueueTask => ({
  projectId: 'p1',
  queue: 'work',
  title: 'a task',
  payload: { n: 1 },
  ...over,
});

/** What a task needs to be run as a run. */
export const RUNNABLE: Partial<CreateQueueTask> = {
  backendProfile: 'demo',
  providerId: 'default',
  workspaceRef: { path: 'work' },
  executionPolicy: { sandbox: 'none' },
};

export async function aTask(db: Db, over: Partial<CreateQueueTask> = {}, tenantId = TENANT): Promise<QueueTask> {
  return (await createQueueTask(db, { tenantId, task: newQueueTask(over) })).task;
}

export async function manyTasks(db: Db, count: number, over: Partial<CreateQueueTask> = {}, tenantId = TENANT): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length < count) {
    const tasks = Array.from({ length: Math.min(100, count - ids.length) }, () => newQueueTask(over));
    ids.push(...(await createQueueTasks(db, { tenantId, tasks })).tasks.map(({ taskId }) => taskId));
  }
  return ids;
}

export const aWorker = (): string => `worker-${randomUUID()}`;

/** For as long as may be: what a test leaves claimed is nothing to the sweeps of the next one, however slow the machine. */
export function claimTasks(db: Db, over: Partial<ClaimTasksInput> = {}): Promise<ClaimedQueueTask[]> {
  return claimQueueTasks(db, { tenantId: TENANT, queue: 'work', owner: aWorker(), leaseMs: CLAIM_LEASE_MS_MAX, ...over });
}

export async function aClaimedTask(db: Db, over: Partial<CreateQueueTask> = {}): Promise<ClaimedQueueTask> {
  const queue = `q-${randomUUID()}`;
  await aTask(db, { queue, ...over });
  const [claimed] = await claimTasks(db, { queue: over.queue ?? queue });
  if (claimed === undefined) throw new Error('the task was not claimed');
  return claimed;
}

/** Lets the lease of a task, or the time of a reservation of it, end now, as time would. */
export async function endTaskLease(db: Db, taskId: string): Promise<void> {
  const past = sql`runplane.app_now() - interval '1 second'`;
  await db.sql.query(sql`UPDATE runplane.queue_tasks SET expires_at = ${past} WHERE id = ${taskId}::text AND expires_at IS NOT NULL`);
  await db.sql.query(sql`UPDATE runplane.queue_attempts SET expires_at = ${past} WHERE task_id = ${taskId}::text AND state = 'reserved'`);
}

/** Lets the time come for which a task waits. */
export async function passDelay(db: Db, taskId: string): Promise<void> {
  await db.sql.query(sql`UPDATE runplane.queue_tasks SET ready_at = runplane.app_now() - interval '1 second' WHERE id = ${taskId}::text`);
}
