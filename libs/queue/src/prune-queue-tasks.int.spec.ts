import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { Db } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { createFolderArchive, readArchive, taskArchiveKeyOf, type ArchiveSink } from '@runplane/runs';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { pruneQueueTasksOnce } from './prune-queue-tasks';
import { createQueue } from './queue';
import { markQueueTasksRead } from './read-queue-tasks';
import { settleQueueTask } from './settle-queue-tasks';
import { aClaimedTask, aTask } from './testing';

const t = useDatabase();
const tenantId = TENANT;
const policy = { queueTasksDays: 30, archive: false };
let dir: string;
let archive: ArchiveSink;

beforeAll(async () => {
  await makeTenants(t.db, 'other');
  dir = await mkdtemp(path.join(os.tmpdir(), 'task-archive-'));
  archive = createFolderArchive({ dir });
});
afterAll(() => rm(dir, { recursive: true }));

/** An ended task; `days` old, where it is to be old. */
async function ended(db: Db, outcome: 'completed' | 'failed', days = 31): Promise<string> {
  const { taskId, epoch } = await aClaimedTask(db);
  await settleQueueTask(db, { tenantId, taskId, epoch, outcome, ...(outcome === 'failed' && { failureKind: 'broken' }) });
  await age(taskId, days);
  return taskId;
}

const age = (taskId: string, days: number): Promise<unknown> =>
  t.db.pool.query(
    `UPDATE runplane.queue_tasks SET ended_at = ended_at - $2::int * interval '1 day', updated_at = updated_at - $2::int * interval '1 day' WHERE id = $1`,
    [taskId, days],
  );

async function rowsOf(taskId: string): Promise<(number | null)[]> {
  const count = (table: string, column: string) => t.db.pool.query(`SELECT FROM runplane.${table} WHERE ${column} = $1`, [taskId]);
  const found = [count('queue_tasks', 'id'), count('queue_attempts_all', 'task_id'), count('queue_task_read_cursors', 'task_id')];
  return (await Promise.all(found)).map(({ rowCount }) => rowCount);
}

const reserve = (taskId: string) => createQueue(t.db).reserveQueueRetry({ tenantId, taskId, idempotencyKey: 'k', reason: 'again' });

test('what ended long ago goes with attempts and read marks; what is young, open, reserved for a retry, or another tenant’s stays', async () => {
  const old = await ended(t.db, 'completed');
  const stays = [await ended(t.db, 'completed', 29), await ended(t.db, 'failed'), (await aTask(t.db)).id];
  await reserve(stays[1] ?? '');
  await age(stays[2] ?? '', 31);
  await markQueueTasksRead(t.db, { tenantId, readerId: 'r', taskIds: [old] });

  const dry = await pruneQueueTasksOnce(t.db, { tenantId, policy, dryRun: true });
  expect(dry).toMatchObject({ changed: 0, tenants: [{ ids: [old], rows: { queueTasks: 1, attempts: 1 }, more: false }] });
  expect(await rowsOf(old)).toEqual([1, 1, 1]);
  expect(await pruneQueueTasksOnce(t.db, { tenantId })).toMatchObject({ changed: 0, tenants: [] }); // nobody has said so
  expect(await pruneQueueTasksOnce(t.db, { tenantId: 'other', policy })).toMatchObject({ changed: 0 });

  const told: string[] = [];
  const done = await pruneQueueTasksOnce(t.db, { tenantId, policy, onRemoved: ({ id }) => told.push(id) });

  expect([done.changed, done.tenants, told]).toEqual([1, dry.tenants, [old]]);
  expect(await rowsOf(old)).toEqual([0, 0, 0]);
  expect(await Promise.all(stays.map(async (id) => (await rowsOf(id))[0]))).toEqual([1, 1, 1]);
});

test('a copy is written and read back first; without an archive, or with a copy that is not what was written, the task stays', async () => {
  const wanted = { queueTasksDays: 30 };
  const [good, bad] = [await ended(t.db, 'completed'), await ended(t.db, 'completed')];
  expect(await pruneQueueTasksOnce(t.db, { tenantId, policy: wanted })).toMatchObject({ changed: 0, tenants: [{ archiveMissing: true }] });
  const keyOf = (taskId: string): string => taskArchiveKeyOf({ tenantId, taskId });
  const mixedUp: ArchiveSink = { ...archive, get: (key) => archive.get(key === keyOf(bad) ? keyOf(good) : key) };

  const found = await pruneQueueTasksOnce(t.db, { tenantId, policy: wanted, archive: mixedUp });

  expect(found).toMatchObject({ changed: 1, failed: 1, tenants: [{ ids: [good], failures: [{ id: bad, reason: expect.stringContaining('damaged') }] }] }); // prettier-ignore
  expect([await rowsOf(good), await rowsOf(bad)]).toEqual([[0, 0, 0], [1, 1, 0]]); // prettier-ignore
  const lines = [];
  for await (const line of readArchive(archive, keyOf(good))) lines.push(line);
  expect(lines).toMatchObject([
    { kind: 'header', format: 'runplane-task-archive', tenantId, taskId: good },
    { kind: 'task', row: { id: good, state: 'completed', payload: { n: 1 } } },
    { kind: 'attempt', row: { task_id: good, retry_index: 0, state: 'completed' } },
    { kind: 'manifest', counts: { task: 1, attempt: 1 } },
  ]);
  await pruneQueueTasksOnce(t.db, { tenantId, policy });
});

test('a task that changes after its copy was made stays, and one that somebody holds is passed over', async () => {
  const [retried, held] = [await ended(t.db, 'failed'), await ended(t.db, 'completed')];
  const slow: ArchiveSink = {
    ...archive,
    put: async (key, content) => {
      const receipt = await archive.put(key, content);
      if (key === taskArchiveKeyOf({ tenantId, taskId: retried })) await reserve(retried);
      return receipt;
    },
  };
  const holder = await openClient(t.url);
  await holder.query(`BEGIN; SELECT FROM runplane.queue_tasks WHERE id = '${held}' FOR NO KEY UPDATE`);

  expect(await pruneQueueTasksOnce(t.db, { tenantId, policy: { queueTasksDays: 30 }, archive: slow })).toMatchObject({ changed: 0 });
  await holder.query('COMMIT');
  await holder.end();

  expect(await pruneQueueTasksOnce(t.db, { tenantId, policy })).toMatchObject({ changed: 1, tenants: [{ ids: [held] }] });
  expect(await rowsOf(retried)).toEqual([1, 2, 0]);
});

test('a task whose attempt is written out while it is being removed stays for the next pass, which takes the attempt too', async () => {
  const old = await ended(t.db, 'completed');
  // A removal stops between its snapshot and its locks.
  await t.db.pool
    .query(`CREATE FUNCTION public.stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
    CREATE TRIGGER stop BEFORE DELETE ON runplane.queue_tasks FOR EACH STATEMENT EXECUTE FUNCTION public.stop()`);
  const holder = await openClient(t.url);
  await holder.query('BEGIN; SELECT FROM pg_advisory_xact_lock(1)');

  const pruned = pruneQueueTasksOnce(t.db, { tenantId, policy });
  await waitUntilBlocked(t.db, 1);
  expect(await createQueue(t.db).cancelQueueTask({ tenantId, taskId: old, reason: 'late' })).toMatchObject({ changed: false });
  await holder.query('COMMIT');
  await holder.end();
  const report = await pruned;
  await t.db.pool.query('DROP TRIGGER stop ON runplane.queue_tasks; DROP FUNCTION public.stop()');

  expect([report.changed, await rowsOf(old)]).toEqual([0, [1, 1, 0]]);
  expect(await pruneQueueTasksOnce(t.db, { tenantId, policy })).toMatchObject({ changed: 1, tenants: [{ rows: { attempts: 1 } }] });
  expect(await rowsOf(old)).toEqual([0, 0, 0]);
});

test('a pass goes as far as its limit, and the next one goes on behind it', async () => {
  const old = [await ended(t.db, 'completed'), await ended(t.db, 'completed'), await ended(t.db, 'completed')];

  const first = await pruneQueueTasksOnce(t.db, { tenantId, policy, limit: 2 });
  expect(first).toMatchObject({ changed: 2, tenants: [{ more: true }] });
  const second = await pruneQueueTasksOnce(t.db, { tenantId, policy, limit: 2, after: first.next });

  expect(second).toMatchObject({ changed: 1, tenants: [{ more: false }] });
  expect(second.next.size).toBe(0);
  expect([...first.tenants, ...second.tenants].flatMap(({ ids }) => ids).sort()).toEqual(old.sort());
});
