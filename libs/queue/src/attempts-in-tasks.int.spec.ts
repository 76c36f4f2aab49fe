import { useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { createQueue, getQueueTask, listQueueAttempts, settleQueueTask, sweepQueueLeasesOnce } from './index';
import { aClaimedTask, claimTasks, endTaskLease, passDelay } from './testing';

// The attempt of a claim stands in its task and has no row of its own until more is to be said of it than that it runs or was completed.

const t = useDatabase();
const tenantId = TENANT;
beforeAll(() => makeTenants(t.db));
const shown = async (taskId: string) => (await listQueueAttempts(t.db, { tenantId, taskId })).attempts;
const written = async (taskId: string) =>
  (
    await t.db.pool.query<{ state: string }>('SELECT state FROM runplane.queue_attempts WHERE task_id = $1 ORDER BY retry_index', [taskId])
  ).rows.map(({ state }) => state);

test('under way and completed it has no row, and is shown with all there is to tell', async () => {
  const { taskId, attemptId, epoch } = await aClaimedTask(t.db);

  const [running] = await shown(taskId);
  const settled = await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });
  const [completed] = await shown(taskId);

  expect(running).toMatchObject({
    attemptId,
    state: 'running',
    retryIndex: 0,
    epoch,
    previousAttemptId: null,
    terminalAt: null,
    failure: null,
  });
  expect(running?.activatedAt).toBe(running?.createdAt);
  expect(settled).toMatchObject({ state: 'completed', replayed: false });
  expect(completed).toEqual({ ...running, state: 'completed', updatedAt: completed?.terminalAt, terminalAt: expect.any(String) as string });
  expect(await getQueueTask(t.db, { tenantId, taskId })).toMatchObject({ latestAttempt: { attemptId, state: 'completed' } });
  expect(await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' })).toMatchObject({ replayed: true });
  expect(await written(taskId)).toEqual([]);
});

test.each([
  ['failed', 'failed'],
  ['blocked', 'blocked'],
  ['released', 'cancelled'],
] as const)('%s it is written', async (outcome, state) => {
  const { taskId, epoch } = await aClaimedTask(t.db);

  await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome, ...(outcome !== 'released' && { failureKind: 'backend-failed' }) });

  expect(await written(taskId)).toEqual([state]);
  expect((await shown(taskId)).map((attempt) => attempt.state)).toEqual([state]);
});

test('each names the one before it, whatever became of that one', async () => {
  const first = await aClaimedTask(t.db, { maxAttempts: 5 });
  const queue = (await getQueueTask(t.db, { tenantId, taskId: first.taskId })).queue;
  const again = async () => {
    await passDelay(t.db, first.taskId);
    const [claimed] = await claimTasks(t.db, { queue });
    if (claimed === undefined) throw new Error('the task was not claimed again');
    return claimed;
  };
  await settleQueueTask(t.db, { tenantId, taskId: first.taskId, epoch: first.epoch, outcome: 'released' });
  const second = await again();
  await endTaskLease(t.db, second.taskId);
  await sweepQueueLeasesOnce(t.db);
  const third = await again();
  await settleQueueTask(t.db, { tenantId, taskId: third.taskId, epoch: third.epoch, outcome: 'completed' });

  expect((await shown(first.taskId)).map(({ attemptId, previousAttemptId, state }) => [attemptId, previousAttemptId, state])).toEqual([
    [third.attemptId, second.attemptId, 'completed'],
    [second.attemptId, first.attemptId, 'failed'],
    [first.attemptId, null, 'cancelled'],
  ]);
  expect(await written(first.taskId)).toEqual(['cancelled', 'failed']);
});

test('whoever says more of it writes it out, and its end is told there', async () => {
  const { taskId, attemptId, epoch } = await aClaimedTask(t.db);
  const queue = createQueue(t.db);
  const before = await shown(taskId);
  const { version } = await getQueueTask(t.db, { tenantId, taskId });

  await queue.updateQueueAttempt({ tenantId, taskId, attemptId, epoch, expectedVersion: version, state: 'running', runnerJobId: 'job-1' });
  const [told] = await shown(taskId);
  await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });

  expect(told).toEqual({ ...before[0], runnerJobId: 'job-1', updatedAt: told?.updatedAt });
  expect(await written(taskId)).toEqual(['completed']);
  expect(await shown(taskId)).toMatchObject([{ attemptId, state: 'completed', runnerJobId: 'job-1', epoch }]);
});

test('in a lane with a limit it stays in its task too', async () => {
  const queue = 'limited';
  await createQueue(t.db).setLaneLimit({ tenantId, queue, lane: 'default', maxRunning: 1 });
  const { taskId, epoch, attemptId } = await aClaimedTask(t.db, { queue });

  await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });

  expect(await shown(taskId)).toMatchObject([{ attemptId, state: 'completed', epoch }]);
  expect(await written(taskId)).toEqual([]);
});
