import type { QueueTaskState, TaskCause } from '@runplane/contracts';
import { inTransaction, sql } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import { claimRun, createRuns } from '@runplane/runs';
import { aRunner, makeTenants, TENANT } from '@runplane/runs/testing';
import {
  createQueue,
  createQueueTask,
  explainQueueTask,
  getQueueCommander,
  getQueueStats,
  getQueueTask,
  listQueueAttempts,
  listQueueTaskChanges,
  listQueueTasks,
  markQueueTasksRead,
  settleQueueTask,
} from './index';
import { explainTaskFacts } from './task-explanation';
import { aClaimedTask, aTask, claimTasks, endTaskLease, manyTasks, newQueueTask, RUNNABLE } from './testing';

const t = useDatabase();
const tenantId = TENANT;
const queue = () => createQueue(t.db);

beforeAll(() => makeTenants(t.db, 'other', 'lists', 'changes', 'numbers'));

async function pages(list: (cursor: string | undefined) => Promise<{ tasks: { id: string }[]; cursor: string | null }>): Promise<string[]> {
  const ids: string[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await list(cursor);
    ids.push(...page.tasks.map(({ id }) => id));
    if (page.cursor === null) return ids;
    cursor = page.cursor;
  }
}

test('lists go by priority, then by age, over queues and states, and no page misses or repeats a task that changes meanwhile', async () => {
  const made: { id: string; priority: number; queue: string }[] = [];
  for (let n = 0; n < 24; n += 1) {
    const over = { queue: `list-${n % 3}`, priority: [3, -1, 7][n % 3 === 0 ? n % 2 : n % 3] ?? 0 };
    const { task } = await createQueueTask(t.db, { tenantId: 'lists', task: newQueueTask(over) });
    made.push({ id: task.id, ...over });
  }
  await t.db.sql.query(
    sql`UPDATE runplane.queue_tasks SET created_at = created_at - interval '1 hour' * (random() * 3)::int WHERE tenant_id = 'lists'`,
  );
  const rows = await t.db.sql.query(
    sql`SELECT id AS "id", queue AS "queue" FROM runplane.queue_tasks WHERE tenant_id = 'lists' ORDER BY priority DESC, created_at, id`,
  );
  const order = rows.map(({ id }) => String(id));

  expect(await pages((cursor) => listQueueTasks(t.db, { tenantId: 'lists', cursor, limit: 5 }))).toEqual(order);
  let page = 0;
  const moving = await pages(async (cursor) => {
    if ((page += 1) === 2) await claimTasks(t.db, { tenantId: 'lists', queue: 'list-1', limit: 8 });
    return listQueueTasks(t.db, { tenantId: 'lists', cursor, limit: 4, queue: 'list-1' });
  });
  expect(moving).toEqual(rows.filter((row) => row['queue'] === 'list-1').map(({ id }) => String(id)));
  expect(await pages((cursor) => listQueueTasks(t.db, { tenantId: 'lists', cursor, limit: 3, state: 'running' }))).toEqual(moving);
  expect(await listQueueTasks(t.db, { tenantId: 'other' })).toEqual({ tasks: [], cursor: null });
  expect((await listQueueTasks(t.db, { tenantId: 'lists', queue: 'no-such' })).tasks).toEqual([]);
  const { cursor } = await listQueueTasks(t.db, { tenantId: 'lists', limit: 1 });
  await expect(listQueueTasks(t.db, { tenantId: 'lists', cursor: cursor ?? '', state: 'failed' })).rejects.toMatchObject({
    code: 'invalid_cursor',
  });
  expect((await listQueueTasks(t.db, { tenantId: 'lists', limit: 1 })).tasks[0]).not.toHaveProperty('payload');
});

test('a reader of changes sees a late commit behind what it has read, and each task as it is now', async () => {
  const of = { tenantId: 'changes' };
  const early = await openClient(t.url);
  const [a = '', b = ''] = await manyTasks(t.db, 2, { queue: 'c' }, of.tenantId);
  await waitForHorizon(t.db);
  const first = await listQueueTaskChanges(t.db, of);
  expect(first.tasks.map(({ id }) => id)).toEqual([a, b].sort());

  await early.query('BEGIN');
  await early.query(
    `UPDATE runplane.queue_tasks SET title = 'late', version = version + 1,
    changed_tx = pg_current_xact_id()::text::bigint + (SELECT tx_offset FROM runplane.store) WHERE id = $1`,
    [a],
  ); // drawn before, committed after
  await queue().cancelQueueTask({ ...of, taskId: b });
  const between = await listQueueTaskChanges(t.db, { ...of, after: first.cursor });
  expect(between).toMatchObject({ tasks: [], more: false });
  await early.query('COMMIT');
  await early.end();
  await waitForHorizon(t.db);
  const after = await listQueueTaskChanges(t.db, { ...of, after: between.cursor });

  expect(after.tasks.map(({ id, title, state }) => [id, title, state])).toEqual([
    [a, 'late', 'pending'],
    [b, 'a task', 'cancelled'],
  ]);
  expect(await listQueueTaskChanges(t.db, { ...of, after: after.cursor })).toMatchObject({ tasks: [] });
  expect((await listQueueTaskChanges(t.db, { ...of, after: 'now' })).cursor).toBe(after.cursor);
  expect((await listQueueTaskChanges(t.db, { ...of, limit: 1 })).more).toBe(true);
  await expect(listQueueTaskChanges(t.db, { ...of, after: 'nonsense' })).rejects.toMatchObject({ code: 'invalid_cursor' });
});

test('attempts are listed newest first, page by page', async () => {
  const { taskId, queue: own } = await aClaimedTask(t.db, { maxAttempts: 5 });
  for (let epoch = 1; epoch < 6; epoch += 2) {
    await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'released' });
    await claimTasks(t.db, { queue: own });
  }

  const page = await listQueueAttempts(t.db, { tenantId, taskId, limit: 3 });
  const rest = await listQueueAttempts(t.db, { tenantId, taskId, limit: 3, cursor: page.cursor ?? '' });

  expect([...page.attempts, ...rest.attempts].map(({ retryIndex, state }) => [retryIndex, state])).toEqual([
    [3, 'running'],
    [2, 'cancelled'],
    [1, 'cancelled'],
    [0, 'cancelled'],
  ]);
  expect(rest.cursor).toBeNull();
  expect(page.attempts[0]?.previousAttemptId).toBe(page.attempts[1]?.attemptId);
  await expect(listQueueAttempts(t.db, { tenantId: 'other', taskId })).rejects.toMatchObject({ code: 'task_not_found' });
});

test('numbers, and what wants a look: unread first, then by priority and age', async () => {
  const of = { tenantId: 'numbers' };
  const states: QueueTaskState[] = ['pending', 'completed', 'failed', 'cancelled'];
  const ids: Record<string, string> = {};
  for (const [n, state] of states.entries()) {
    const { task } = await createQueueTask(t.db, {
      ...of,
      task: newQueueTask({ queue: n < 3 ? 'n1' : 'n2', lane: `lane-${n % 2}`, priority: n, backendProfile: n === 0 ? null : 'demo' }),
    });
    ids[state] = task.id;
    if (state === 'cancelled') await queue().cancelQueueTask({ ...of, taskId: task.id });
    else if (state !== 'pending')
      await queue().updateQueueAttempt({
        ...of,
        taskId: task.id,
        attemptId: 'x',
        expectedVersion: 1,
        state,
        ...(state === 'failed' ? { failureKind: 'timeout' } : {}),
      });
  }
  const { pending = '', completed = '', failed = '', cancelled = '' } = ids;

  expect(await getQueueStats(t.db, of)).toMatchObject({
    queue: null,
    total: 4,
    byState: { pending: 1, completed: 1, failed: 1, cancelled: 1 },
    byLane: { 'lane-0': 2, 'lane-1': 2 },
    byProfile: { demo: 3, '': 1 },
    oldestPendingAt: (await getQueueTask(t.db, { ...of, taskId: pending })).createdAt,
  });
  expect(await getQueueStats(t.db, { ...of, queue: 'none' })).toMatchObject({
    total: 0,
    byState: {},
    oldestPendingAt: null,
    newestVersion: null,
  });

  const shown = async (over = {}) => (await getQueueCommander(t.db, { ...of, ...over })).tasks.map(({ id }) => id);
  expect(await shown()).toEqual([failed, pending]);
  expect(await shown({ readerId: 'me' })).toEqual([cancelled, failed, completed, pending]);
  expect(await markQueueTasksRead(t.db, { ...of, readerId: 'me', taskIds: [failed, completed, 'qt_none'] })).toMatchObject({
    unknown: ['qt_none'],
  });
  expect(await shown({ readerId: 'me' })).toEqual([cancelled, pending, failed]);
  expect(await shown({ readerId: 'me', queue: 'n1' })).toEqual([pending, failed]);
  const seen = await listQueueTasks(t.db, { ...of, readerId: 'me', state: 'failed' });
  expect(seen.tasks[0]?.reader).toEqual({ readerId: 'me', unread: false, readVersion: 2 });
  await queue().reserveQueueRetry({ ...of, taskId: failed, idempotencyKey: 'k', reason: 'again' });
  expect((await listQueueTasks(t.db, { ...of, readerId: 'me', state: 'failed' })).tasks[0]?.reader?.unread).toBe(false);
});

describe('why a task is where it is', () => {
  const make: Record<TaskCause, () => Promise<string>> = {
    'waits-for-worker': async () => (await aTask(t.db, { queue: 'why-1' })).id,
    'no-worker': async () => {
      const { id } = await aTask(t.db, { queue: 'why-2' });
      await t.db.sql.query(sql`UPDATE runplane.queue_tasks SET ready_at = ready_at - interval '5 minutes' WHERE id = ${id}::text`);
      return id;
    },
    'waits-for-its-time': async () => (await aTask(t.db, { runAt: '2099-01-01T00:00:00Z' })).id,
    'backs-off': async () => {
      const { taskId, epoch } = await aClaimedTask(t.db);
      await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'released', failureKind: 'timeout' });
      await t.db.sql.query(sql`UPDATE runplane.queue_tasks SET ready_at = ready_at + interval '1 hour' WHERE id = ${taskId}::text`); // a long one
      return taskId;
    },
    'lane-full': () => full('default'),
    'queue-full': () => full(null),
    'worked-on': async () => (await aClaimedTask(t.db)).taskId,
    'worker-lost': async () => {
      const { taskId } = await aClaimedTask(t.db);
      await endTaskLease(t.db, taskId);
      return taskId;
    },
    'run-under-way': () => aRun(),
    'run-has-ended': async () => {
      const taskId = await aRun();
      const { latestAttempt } = await getQueueTask(t.db, { tenantId, taskId });
      const runId = latestAttempt?.runId ?? '';
      const { epoch } = await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
      await createRuns(t.db).finishRun({ tenantId, runId, epoch, outcome: { terminalStatus: 'completed' } });
      return taskId;
    },
    'reported-by-others': async () => {
      const { id } = await aTask(t.db);
      await queue().updateQueueAttempt({ tenantId, taskId: id, attemptId: 'x', expectedVersion: 1, state: 'running' });
      return id;
    },
    'can-be-retried': () => failed(),
    'retry-reserved': () => reserved(),
    'retry-reservation-over': async () => {
      const taskId = await reserved();
      await endTaskLease(t.db, taskId);
      return taskId;
    },
    ended: async () => {
      const { id } = await aTask(t.db);
      await queue().cancelQueueTask({ tenantId, taskId: id });
      return id;
    },
  };
  const MOVING: TaskCause[] = [
    'waits-for-worker',
    'waits-for-its-time',
    'backs-off',
    'lane-full',
    'queue-full',
    'worked-on',
    'run-under-way',
    'retry-reserved',
    'ended',
  ];

  async function full(lane: string | null): Promise<string> {
    const name = `full-${lane ?? 'queue'}`;
    await queue().setLaneLimit({ tenantId, queue: name, lane, maxRunning: 1 });
    const [, id = ''] = await manyTasks(t.db, 2, { queue: name });
    await claimTasks(t.db, { queue: name, limit: 2 });
    return id;
  }
  async function aRun(): Promise<string> {
    const { id } = await aTask(t.db, RUNNABLE);
    await queue().runQueueTask({ tenantId, taskId: id });
    return id;
  }
  async function failed(): Promise<string> {
    const { taskId, epoch } = await aClaimedTask(t.db, RUNNABLE);
    await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'failed', failureKind: 'timeout' });
    return taskId;
  }
  async function reserved(): Promise<string> {
    const taskId = await failed();
    await queue().reserveQueueRetry({ tenantId, taskId, idempotencyKey: 'k', reason: 'again' });
    return taskId;
  }

  test.each(Object.entries(make) as [TaskCause, () => Promise<string>][])('%s', async (cause, makeIt) => {
    const taskId = await makeIt();

    const why = await explainQueueTask(t.db, { tenantId, taskId });

    expect(why).toMatchObject({ taskId, cause, isMoving: MOVING.includes(cause) });
    expect(why.sentence).toMatch(/^[A-Z0-9].*\.$/);
    expect(why.run?.cause).toBe(cause === 'run-under-way' ? 'waits-for-dispatcher' : undefined);
    await expect(explainQueueTask(t.db, { tenantId: 'other', taskId })).rejects.toMatchObject({ code: 'task_not_found' });
  });

  test('a state that no rule knows is an error', () => {
    expect(() => explainTaskFacts({ state: 'novel' } as never)).toThrow(/novel/);
  });
});

test('reads join the caller’s transaction', async () => {
  const seen = await inTransaction(t.db, async (tx) => {
    const { task } = await createQueueTask(tx, { tenantId, task: newQueueTask({ queue: 'tx' }) });
    return (await listQueueTasks(tx, { tenantId, queue: 'tx' })).tasks.map(({ id }) => id === task.id);
  });

  expect(seen).toEqual([true]);
});
