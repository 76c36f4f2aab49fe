import {
  claimQueueTasks,
  createQueue,
  listQueueAttempts,
  listQueueLanes,
  renewQueueTask,
  settleAttemptsOnce,
  settleQueueTask,
  sweepQueueLeasesOnce,
} from '@runplane/queue';
import { aClaimedTask, aTask, aWorker, endTaskLease, RUNNABLE } from '@runplane/queue/testing';
import { waitUntilBlocked } from '@runplane/database/testing';
import { claimRun, createRuns } from '@runplane/runs';
import { aRunner, TENANT } from '@runplane/runs/testing';
import { ending, lockRow, useRaces } from '../support/races';

// What two do to one queue task at the same moment: one has the row, PostgreSQL says that the others wait, then the first lets go.

const t = useRaces({ coalesce: false });
const tenantId = TENANT;
const queue = () => createQueue(t.db);
const completed = (taskId: string, epoch = 1) => settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });
const statesOf = async (taskId: string) => (await listQueueAttempts(t.db, { tenantId, taskId })).attempts.map(({ state }) => state);

/** Runs both, the first of which comes first to the row that is held meanwhile. */
async function inOrder<A, B>(taskId: string, first: () => Promise<A>, second: () => Promise<B>) {
  const hold = await lockRow(t.url, 'queue_tasks', `id = '${taskId}'`);
  const one = ending(first());
  await waitUntilBlocked(t.db, 1);
  const two = ending(second());
  await waitUntilBlocked(t.db, 2);
  await hold.release();
  return [await one, await two] as const;
}

test('a result that meets a cancel: whoever comes first has decided', async () => {
  const [a, b] = [await aClaimedTask(t.db), await aClaimedTask(t.db)];

  const told = await inOrder(
    a.taskId,
    () => completed(a.taskId),
    () => queue().cancelQueueTask({ tenantId, taskId: a.taskId }),
  );
  const cancelled = await inOrder(
    b.taskId,
    () => queue().cancelQueueTask({ tenantId, taskId: b.taskId }),
    () => completed(b.taskId),
  );

  expect(told).toMatchObject([{ value: { state: 'completed' } }, { value: { changed: false, task: { state: 'completed' } } }]);
  expect(cancelled).toMatchObject([{ value: { changed: true } }, { code: 'task_claim_lost', data: { state: 'cancelled' } }]);
  expect([await statesOf(a.taskId), await statesOf(b.taskId)]).toEqual([['completed'], ['cancelled']]);
});

test('a result that is told twice at once is told once', async () => {
  const { taskId } = await aClaimedTask(t.db);

  const both = await inOrder(
    taskId,
    () => completed(taskId),
    () => completed(taskId),
  );

  expect(both).toMatchObject([{ value: { replayed: false } }, { value: { replayed: true } }]);
});

test('a completion that waits for a renewal completes what was renewed; one that waits for a limit gives back the place it got by it', async () => {
  const [renewed, limited] = [await aClaimedTask(t.db), await aClaimedTask(t.db)];
  const key = { tenantId, queue: limited.queue, lane: limited.lane };

  const told = await inOrder(
    renewed.taskId,
    () => renewQueueTask(t.db, { tenantId, taskId: renewed.taskId, epoch: 1 }),
    () => completed(renewed.taskId),
  );
  const counted = await inOrder(
    limited.taskId,
    () => queue().setLaneLimit({ ...key, maxRunning: 1 }),
    () => completed(limited.taskId),
  );

  expect(told[1]).toMatchObject({ value: { state: 'completed', replayed: false } });
  expect(counted).toMatchObject([{ value: { running: 1 } }, { value: { state: 'completed', replayed: false } }]);
  expect((await listQueueLanes(t.db, { tenantId, queue: limited.queue })).lanes).toMatchObject([{ maxRunning: 1, running: 0 }]);
});

test('an end that waits for a report of its attempt ends the attempt where the report has written it', async () => {
  const { taskId, attemptId } = await aClaimedTask(t.db);
  const report = { tenantId, taskId, attemptId, epoch: 1, expectedVersion: 2, state: 'running', runnerJobId: 'job-1' } as const;

  const [, ended] = await inOrder(
    taskId,
    () => queue().updateQueueAttempt(report),
    () => settleQueueTask(t.db, { tenantId, taskId, epoch: 1, outcome: 'failed', failureKind: 'timeout' }),
  );

  expect(ended).toMatchObject({ value: { state: 'failed' } });
  expect((await listQueueAttempts(t.db, { tenantId, taskId })).attempts).toMatchObject([
    { attemptId, state: 'failed', runnerJobId: 'job-1' },
  ]);
});

test('a claim that waits for its lane leaves a task that was changed meanwhile to the next one, uncounted', async () => {
  const queueName = 'changing';
  const lane = { tenantId, queue: queueName, lane: 'default' };
  const [changed, other] = [await aTask(t.db, { queue: queueName, priority: 1 }), await aTask(t.db, { queue: queueName })];
  await queue().setLaneLimit({ ...lane, maxRunning: 5 });
  const claim = () => claimQueueTasks(t.db, { ...lane, owner: aWorker(), limit: 2 });

  const hold = await lockRow(t.url, 'queue_lanes', `queue = '${queueName}'`);
  const waiting = claim();
  await waitUntilBlocked(t.db, 1);
  await t.db.pool.query(`UPDATE runplane.queue_tasks SET title = 'changed' WHERE id = $1`, [changed.id]);
  await hold.release();

  expect(await waiting).toMatchObject([{ taskId: other.id }]);
  expect((await listQueueLanes(t.db, { tenantId, queue: queueName })).lanes).toMatchObject([{ running: 1 }]);
  expect(await claim()).toMatchObject([{ taskId: changed.id, title: 'changed' }]);
});

test('a renewal that waits for the row is judged by the clock after the wait; a sweep passes a held row over', async () => {
  const { taskId, epoch } = await aClaimedTask(t.db);
  const hold = await lockRow(t.url, 'queue_tasks', `id = '${taskId}'`);
  const renewed = ending(renewQueueTask(t.db, { tenantId, taskId, epoch }));
  await waitUntilBlocked(t.db, 1);
  await hold.query(`UPDATE runplane.queue_tasks SET expires_at = runplane.app_now() WHERE id = '${taskId}'`);
  expect(await sweepQueueLeasesOnce(t.db)).toEqual({ changed: 0 });
  await hold.release();

  expect(await renewed).toMatchObject({ code: 'task_claim_lost' });
  expect(await sweepQueueLeasesOnce(t.db)).toEqual({ changed: 1 });
});

test('a start as a run passes no claim: a claimer goes past a task that is being started, and a start that comes later is refused', async () => {
  const task = await aTask(t.db, { queue: 'race-run', ...RUNNABLE });
  const claim = () => claimQueueTasks(t.db, { tenantId, queue: 'race-run', owner: aWorker() });
  const hold = await lockRow(t.url, 'queue_tasks', `id = '${task.id}'`);
  const started = ending(queue().runQueueTask({ tenantId, taskId: task.id }));
  await waitUntilBlocked(t.db, 1);
  expect(await claim()).toEqual([]);
  await hold.release();

  expect(await started).toMatchObject({ value: { disposition: 'created' } });
  const other = await aClaimedTask(t.db, RUNNABLE);
  expect(await ending(queue().runQueueTask({ tenantId, taskId: other.taskId }))).toMatchObject({ code: 'task_held' });
});

test('two starts of one task make one run', async () => {
  const { id: taskId } = await aTask(t.db, { queue: 'race-two', ...RUNNABLE });

  const both = await inOrder(
    taskId,
    () => queue().runQueueTask({ tenantId, taskId }),
    () => queue().runQueueTask({ tenantId, taskId }),
  );

  expect(both).toMatchObject([{ value: { disposition: 'created' } }, { value: { disposition: 'replayed' } }]);
});

test('the end of a run that meets a cancel of its task ends the task once', async () => {
  const { id: taskId } = await aTask(t.db, { queue: 'race-end', ...RUNNABLE });
  const { run } = await queue().runQueueTask({ tenantId, taskId });
  const { epoch } = await claimRun(t.db, { tenantId, runId: run.id, runnerId: aRunner() });
  await createRuns(t.db).finishRun({ tenantId, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } });

  const both = await inOrder(
    taskId,
    () => queue().cancelQueueTask({ tenantId, taskId }),
    () => settleAttemptsOnce(t.db),
  );

  expect(both).toMatchObject([{ value: { changed: true, run: { status: 'completed' } } }, { value: { changed: 0, failed: 0 } }]);
  expect(await statesOf(taskId)).toEqual(['cancelled']);
});

test('a retry that is reserved while its task is cancelled is refused; one that was there is cancelled with it', async () => {
  const failed = async () => {
    const { taskId, epoch } = await aClaimedTask(t.db, RUNNABLE);
    await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'failed', failureKind: 'timeout' });
    return taskId;
  };
  const reserve = (taskId: string, idempotencyKey: string) =>
    queue().reserveQueueRetry({ tenantId, taskId, idempotencyKey, reason: 'again' });
  const [a, b] = [await failed(), await failed()];
  await reserve(a, 'k1');
  await endTaskLease(t.db, a);

  const late = await inOrder(
    a,
    () => queue().cancelQueueTask({ tenantId, taskId: a }),
    () => reserve(a, 'k2'),
  );
  const early = await inOrder(
    b,
    () => reserve(b, 'k1'),
    () => queue().cancelQueueTask({ tenantId, taskId: b }),
  );

  expect(late).toMatchObject([{ value: { changed: true } }, { code: 'task_not_retryable', data: { state: 'cancelled' } }]);
  expect(early).toMatchObject([{ value: { created: true } }, { value: { changed: true, attempt: { state: 'cancelled' } } }]);
});
