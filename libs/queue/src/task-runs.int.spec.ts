import type { ActivateQueueRetry, QueueTask, UpdateQueueAttempt } from '@runplane/contracts';
import { sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { claimRun, createRuns, getRun, listCancelRequests } from '@runplane/runs';
import { aRunner, aTurn, makeTenants, story, TENANT } from '@runplane/runs/testing';
import {
  createQueue,
  expireReservationsOnce,
  getQueueTask,
  listQueueAttempts,
  renewQueueTask,
  settleAttemptsOnce,
  settleQueueTask,
  sweepQueueLeasesOnce,
} from './index';
import { aClaimedTask, aTask, claimTasks, endTaskLease, passDelay, RUNNABLE } from './testing';

const t = useDatabase();
const tenantId = TENANT;
const queue = () => createQueue(t.db);
const runs = () => createRuns(t.db);
const task = (taskId: string) => getQueueTask(t.db, { tenantId, taskId });
const attempts = async (taskId: string) => (await listQueueAttempts(t.db, { tenantId, taskId })).attempts;
const refuses = (call: Promise<unknown>, code: string, data?: object) =>
  expect(call).rejects.toMatchObject(data === undefined ? { code } : { code, data });

beforeAll(() => makeTenants(t.db, 'other'));

async function aRunningTask(over = {}): Promise<{ taskId: string; runId: string }> {
  const { id: taskId } = await aTask(t.db, { ...RUNNABLE, ...over });
  const { run } = await queue().runQueueTask({ tenantId, taskId });
  return { taskId, runId: run.id };
}

async function aFailedTask(over = {}): Promise<string> {
  const { taskId, epoch } = await aClaimedTask(t.db, { ...RUNNABLE, ...over });
  await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'failed', failureKind: 'backend-failed' });
  return taskId;
}

describe('a task as a run', () => {
  test('gets run, command, intent and attempt in one transaction, and again only that run', async () => {
    const { id: taskId } = await aTask(t.db, { ...RUNNABLE, payload: { text: 'do it' }, lane: 'night' });

    const made = await queue().runQueueTask({ tenantId, taskId });
    const again = await queue().runQueueTask({ tenantId, taskId });

    const { run, command, intent, attempt } = made;
    expect(made.task).toMatchObject({
      state: 'running',
      holder: null,
      attempts: 1,
      latestAttempt: { runId: run.id, commandId: command.id },
    });
    expect(attempt).toMatchObject({ state: 'running', runnerJobId: intent?.runnerJobId, retryIndex: 0, owner: null });
    expect(run).toMatchObject({ workspaceRef: RUNNABLE.workspaceRef, traceSink: { taskId, lane: 'night', attemptId: attempt.attemptId } });
    expect(await story(t.db, run.id)).toEqual(['run-created', 'user_message', 'command-created']);
    expect(again).toMatchObject({ disposition: 'replayed', run: { id: run.id }, task: { version: made.task.version } });
  });

  test('takes over the claim of whoever asks for it', async () => {
    const { taskId, epoch } = await aClaimedTask(t.db, RUNNABLE);

    await refuses(queue().runQueueTask({ tenantId, taskId }), 'task_held');
    await refuses(queue().runQueueTask({ tenantId, taskId, epoch: epoch + 1 }), 'task_claim_lost', { currentEpoch: epoch });
    const { attempt, disposition } = await queue().runQueueTask({ tenantId, taskId, epoch, dispatch: false });

    expect(disposition).toBe('created');
    expect(attempt).toMatchObject({ retryIndex: 0, epoch, runnerJobId: null });
    expect(await queue().runQueueTask({ tenantId, taskId, epoch })).toMatchObject({ disposition: 'replayed' });
    await refuses(renewQueueTask(t.db, { tenantId, taskId, epoch }), 'task_claim_lost');
    await refuses(settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' }), 'task_claim_lost');
    expect((await sweepQueueLeasesOnce(t.db)).changed).toBe(0);
  });

  test.each(['workspaceRef', 'providerId', 'backendProfile', 'executionPolicy'] as const)(
    'lacks %s: it is for workers that claim it',
    async (name) => {
      const { id: taskId } = await aTask(t.db, { ...RUNNABLE, [name]: null });

      await refuses(queue().runQueueTask({ tenantId, taskId }), 'task_not_runnable', { missing: [name], state: 'pending' });
    },
  );

  test('bound to a session is a turn of it, in the same transaction, and waits while the session is busy', async () => {
    const { id: taskId } = await aTask(t.db, { ...RUNNABLE, sessionRef: { sessionId: 's-task', metadata: { title: 'T' } } });
    const before = await aTurn(t.db, 's-task', { run: { projectId: 'p1', backendProfile: 'demo' } });

    await refuses(queue().runQueueTask({ tenantId, taskId }), 'session_busy', { runId: before.run.id });
    expect(await task(taskId)).toMatchObject({ state: 'pending', version: 1 });
    await runs().cancelRun({ tenantId, runId: before.run.id, immediate: true });
    const { run, attempt } = await queue().runQueueTask({ tenantId, taskId });

    expect(run).toMatchObject({ sessionId: 's-task', status: 'pending' });
    expect(attempt).toMatchObject({ sessionId: 's-task', sessionPath: '/v1/sessions/s-task' });
    expect((await task(taskId)).sessionPath).toBe('/v1/sessions/s-task');
  });

  test('in a new session makes it', async () => {
    const { taskId, runId } = await aRunningTask({ sessionRef: { sessionId: 's-new-of-task' } });

    expect((await getRun(t.db, { tenantId, runId })).sessionId).toBe('s-new-of-task');
    expect((await task(taskId)).state).toBe('running');
  });

  test.each(['completed', 'failed', 'blocked', 'cancelled'] as const)('ends %s with its run', async (terminalStatus) => {
    const { taskId, runId } = await aRunningTask();
    const { epoch } = await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
    const failure = terminalStatus === 'completed' ? {} : { failureKind: 'timeout', failureMessage: 'slow' };

    expect(await settleAttemptsOnce(t.db)).toEqual({ changed: 0, failed: 0 });
    await runs().finishRun({ tenantId, runId, epoch, outcome: { terminalStatus, ...failure } });
    expect(await settleAttemptsOnce(t.db)).toEqual({ changed: 1, failed: 0 });
    expect(await settleAttemptsOnce(t.db)).toEqual({ changed: 0, failed: 0 });

    const ended = await task(taskId);
    expect(ended).toMatchObject({ state: terminalStatus, latestAttempt: { state: terminalStatus }, holder: null });
    expect(ended.latestAttempt?.failure).toEqual(terminalStatus === 'completed' ? null : { kind: 'timeout', message: 'slow' });
    expect(ended.cancelReason).toBe(terminalStatus === 'cancelled' ? 'slow' : null);
    await refuses(queue().runQueueTask({ tenantId, taskId }), 'task_closed');
  });
});

describe('a cancel', () => {
  test('of a pending task ends it', async () => {
    const { id: taskId } = await aTask(t.db);

    const { task: cancelled, changed } = await queue().cancelQueueTask({ tenantId, taskId, reason: 'token=abc123secret no more' });
    const again = await queue().cancelQueueTask({ tenantId, taskId });

    expect(changed).toBe(true);
    expect(cancelled).toMatchObject({ state: 'cancelled', cancelReason: expect.not.stringContaining('abc123secret'), version: 2 });
    expect(again).toMatchObject({ changed: false, task: { version: 2 } });
    await refuses(queue().cancelQueueTask({ tenantId: 'other', taskId }), 'task_not_found');
  });

  test('of a claimed task fences its worker', async () => {
    const { taskId, epoch, attemptId } = await aClaimedTask(t.db);

    const { attempt } = await queue().cancelQueueTask({ tenantId, taskId });

    expect(attempt).toMatchObject({ attemptId, state: 'cancelled', failure: { kind: 'cancelled', message: 'cancel requested' } });
    await refuses(renewQueueTask(t.db, { tenantId, taskId, epoch }), 'task_claim_lost', { state: 'cancelled', currentEpoch: epoch + 1 });
  });

  test('of a task that a run works on asks the run to stop, for the task’s sake, in the same transaction', async () => {
    const { taskId, runId } = await aRunningTask();
    await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });

    const { run, request, task: cancelled } = await queue().cancelQueueTask({ tenantId, taskId, requestedBy: 'key_1' });

    expect(cancelled.state).toBe('cancelled');
    expect(run?.status).toBe('cancelling');
    expect(request).toMatchObject({ targetKind: 'task', targetId: taskId, taskId, requestedBy: 'key_1', runId });
    expect((await listCancelRequests(t.db, { tenantId, runId })).requests).toHaveLength(1);
    expect((await settleAttemptsOnce(t.db)).changed).toBe(0);
  });

  test('of a task whose run waits ends both at once', async () => {
    const { taskId, runId } = await aRunningTask();

    expect((await queue().cancelQueueTask({ tenantId, taskId })).run?.status).toBe('cancelled');
    expect((await getRun(t.db, { tenantId, runId })).status).toBe('cancelled');
  });

  test('reaches a reserved retry and the run that was made under its id', async () => {
    const taskId = await aFailedTask();
    const { attempt } = await queue().reserveQueueRetry({ tenantId, taskId, idempotencyKey: 'r', reason: 'again' });
    const runId = attempt?.runId ?? '';
    await runs().createRun({ tenantId, runId, run: { projectId: 'p1', backendProfile: 'demo' } });

    const cancelled = await queue().cancelQueueTask({ tenantId, taskId });

    expect(cancelled).toMatchObject({
      changed: true,
      task: { state: 'cancelled' },
      attempt: { state: 'cancelled' },
      run: { status: 'cancelled' },
    });
    await refuses(queue().activateQueueRetry({ tenantId, taskId, attemptId: attempt?.attemptId ?? '', state: 'running' }), 'task_closed');
    expect(await queue().cancelQueueTask({ tenantId, taskId: await aFailedTask() })).toMatchObject({
      changed: false,
      task: { state: 'failed' },
    });
  });

  test('before the run was made leaves nothing to stop', async () => {
    const taskId = await aFailedTask();
    await queue().reserveQueueRetry({ tenantId, taskId, idempotencyKey: 'r', reason: 'again' });

    expect(await queue().cancelQueueTask({ tenantId, taskId })).toMatchObject({ changed: true, run: null, request: null });
  });
});

describe('a retry', () => {
  const reserve = (taskId: string, idempotencyKey = 'k', over = {}) =>
    queue().reserveQueueRetry({ tenantId, taskId, idempotencyKey, reason: 'try again', ...over });
  const activate = (taskId: string, attemptId: string, over: Partial<ActivateQueueRetry> = {}) =>
    queue().activateQueueRetry({ tenantId, taskId, attemptId, state: 'running', ...over });

  test('is looked at, reserved, repeated, and refused under another reason or key', async () => {
    const taskId = await aFailedTask();
    const { version } = await task(taskId);

    expect(await reserve(taskId, 'k', { dryRun: true })).toMatchObject({
      attempt: null,
      retryIndex: 1,
      created: false,
      replayed: false,
      dryRun: true,
    });
    const first = await reserve(taskId);
    expect(first).toMatchObject({ created: true, retryIndex: 1, task: { state: 'failed', version } });
    expect(first.attempt).toMatchObject({
      state: 'reserved',
      reason: 'try again',
      runId: expect.stringMatching(/^run_/),
      runnerJobId: expect.stringMatching(/^rjob_/),
    });
    expect(first.attempt?.previousAttemptId).toBe((await attempts(taskId))[1]?.attemptId);
    expect(first.attempt?.reservedForMs).toBeGreaterThan(590_000);

    expect(await reserve(taskId, 'k', { dryRun: true })).toMatchObject({
      replayed: true,
      attempt: { attemptId: first.attempt?.attemptId },
    });
    expect(await reserve(taskId)).toMatchObject({ created: false, replayed: true, attempt: { attemptId: first.attempt?.attemptId } });
    await refuses(reserve(taskId, 'k', { reason: 'other' }), 'idempotency_conflict');
    await refuses(reserve(taskId, 'k2'), 'retry_reserved', { attemptId: first.attempt?.attemptId });
  });

  test.each([
    ['pending', () => aTask(t.db, RUNNABLE).then(({ id }) => id)],
    ['running', () => aRunningTask().then(({ taskId }) => taskId)],
    [
      'completed',
      async () => {
        const { taskId, epoch } = await aClaimedTask(t.db);
        await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });
        return taskId;
      },
    ],
  ])('of a %s task is refused', async (state, make) => {
    await refuses(reserve(await make()), 'task_not_retryable', { state });
  });

  test('begins with the run of its id, and a repeat of the beginning is a repeat, also after the end', async () => {
    const taskId = await aFailedTask();
    const { attempt } = await reserve(taskId);
    const attemptId = attempt?.attemptId ?? '';
    const runId = attempt?.runId ?? '';

    await refuses(activate(taskId, attemptId), 'run_not_found');
    const { epoch } = await makeAndClaim(runId);
    const begun = await activate(taskId, attemptId, { commandId: 'cmd_1' });
    expect(begun).toMatchObject({
      activated: true,
      task: { state: 'running', attempts: 2, latestAttempt: { attemptId } },
      attempt: { state: 'running', commandId: 'cmd_1' },
    });
    expect(await activate(taskId, attemptId, { commandId: 'cmd_1' })).toMatchObject({ activated: false });
    await refuses(activate(taskId, attemptId, { commandId: 'cmd_2' }), 'idempotency_conflict');
    await refuses(activate(taskId, attemptId, { state: 'failed', failureKind: 'timeout' }), 'idempotency_conflict');

    await runs().finishRun({ tenantId, runId, epoch, outcome: { terminalStatus: 'completed' } });
    await settleAttemptsOnce(t.db);
    expect(await activate(taskId, attemptId, { commandId: 'cmd_1' })).toMatchObject({ activated: false, task: { state: 'completed' } });
    await refuses(activate(taskId, 'qa_none'), 'attempt_not_found');
  });

  async function makeAndClaim(runId: string): Promise<{ epoch: number }> {
    await runs().createRun({ tenantId, runId, run: { projectId: 'p1', backendProfile: 'demo' } });
    return claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
  }

  test('that cannot be made is noted, and may fail', async () => {
    const taskId = await aFailedTask();
    const { attempt } = await reserve(taskId);
    const attemptId = attempt?.attemptId ?? '';

    const noted = await queue().noteReservationFailure({
      tenantId,
      taskId,
      attemptId,
      failureKind: 'infra-failed',
      failureMessage: 'no place',
    });
    expect(noted).toMatchObject({ changed: true, attempt: { state: 'reserved', failure: { kind: 'infra-failed', message: 'no place' } } });
    const failed = await activate(taskId, attemptId, { state: 'blocked', failureKind: 'infra-failed' });
    expect(failed).toMatchObject({ activated: true, task: { state: 'blocked', lastError: 'infra-failed' }, attempt: { state: 'blocked' } });
    expect(await queue().noteReservationFailure({ tenantId, taskId, attemptId, failureKind: 'timeout' })).toMatchObject({ changed: false });
    await refuses(activate(taskId, attemptId, { state: 'failed', failureKind: 'infra-failed' }), 'idempotency_conflict');
  });

  test('that was not activated in its time gives way to another key, or is taken up again by its own', async () => {
    const taskId = await aFailedTask();
    const { attempt } = await reserve(taskId);
    const attemptId = attempt?.attemptId ?? '';
    await endTaskLease(t.db, taskId);

    await refuses(activate(taskId, attemptId, { state: 'failed', failureKind: 'timeout' }), 'retry_reservation_expired');
    expect((await reserve(taskId)).attempt?.reservedForMs).toBeGreaterThan(590_000);
    await endTaskLease(t.db, taskId);
    const second = await reserve(taskId, 'k2');
    expect(second).toMatchObject({ created: true, retryIndex: 2 });
    expect((await attempts(taskId)).map(({ state, failure }) => failure?.kind ?? state)).toEqual([
      'reserved',
      'reservation-expired',
      'backend-failed',
    ]);
    await refuses(activate(taskId, attemptId), 'task_closed');

    await endTaskLease(t.db, taskId);
    expect(await expireReservationsOnce(t.db)).toEqual({ changed: 1, failed: 0 });
    expect(await expireReservationsOnce(t.db)).toEqual({ changed: 0, failed: 0 });
    expect(await reserve(taskId, 'k2')).toMatchObject({ replayed: true, attempt: { state: 'failed' } });
    expect(await reserve(taskId, 'k3')).toMatchObject({ created: true, retryIndex: 3 });
  });

  test('of a task that is no longer what it was is refused', async () => {
    const taskId = await aFailedTask();
    await t.db.sql.query(sql`UPDATE runplane.queue_tasks SET payload = '{"n":2}' WHERE id = ${taskId}::text`);

    await refuses(reserve(taskId), 'idempotency_conflict');
  });

  test('twins of a key reserve once; of two keys one is refused', async () => {
    const [same, apart] = [await aFailedTask(), await aFailedTask()];

    const twins = await Promise.all(Array.from({ length: 5 }, () => reserve(same)));
    const rivals = await Promise.allSettled(['a', 'b', 'c'].map((key) => reserve(apart, key)));

    expect(twins.filter(({ created }) => created)).toHaveLength(1);
    expect(rivals.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });
});

describe('a dispatcher of the caller’s own', () => {
  const update = ({ id, version }: Pick<QueueTask, 'id' | 'version'>, over: Partial<UpdateQueueAttempt>) =>
    queue().updateQueueAttempt({ tenantId, taskId: id, attemptId: 'mine', expectedVersion: version, state: 'running', ...over });

  test('begins, moves and ends an attempt; of two that saw the same version one does', async () => {
    const made = await aTask(t.db, { queue: 'own' });

    const begun = await update(made, { state: 'pending', runnerJobId: 'job-1' });
    await refuses(update(made, { attemptId: 'theirs' }), 'task_version_conflict', { version: 2 });
    expect(begun).toMatchObject({
      changed: true,
      task: { state: 'running', version: 2, latestAttempt: { attemptId: 'mine', state: 'pending' } },
    });
    expect(await claimTasks(t.db, { queue: 'own', limit: 100 })).toEqual([]);
    await refuses(update(begun.task, { attemptId: 'second' }), 'attempt_transition_refused', { attemptId: 'mine' });
    const running = await update(begun.task, { runId: 'run_x', commandId: 'cmd_x' });
    expect(running.attempt).toMatchObject({ state: 'running', runId: 'run_x', runnerJobId: 'job-1', owner: null });
    await refuses(update(running.task, { state: 'pending' }), 'attempt_transition_refused', { from: 'running', to: 'pending' });
    const ended = await update(running.task, { state: 'failed', failureKind: 'timeout', failureMessage: 'slow' });
    expect(ended).toMatchObject({ task: { state: 'failed', lastError: 'timeout: slow' }, attempt: { state: 'failed' } });

    expect(await update(made, { state: 'failed', failureKind: 'timeout' })).toMatchObject({ changed: false });
    await refuses(update(ended.task, { state: 'completed' }), 'attempt_transition_refused', { from: 'failed', to: 'completed' });
    await refuses(update(ended.task, { attemptId: 'new' }), 'task_closed', { state: 'failed' });
  });

  test('may report a task that nobody has begun as ended, and names its epoch where somebody holds it', async () => {
    const made = await aTask(t.db);
    expect((await update(made, { state: 'cancelled', failureMessage: 'not needed' })).task).toMatchObject({
      state: 'cancelled',
      cancelReason: 'not needed',
    });

    const { taskId, epoch, attemptId } = await aClaimedTask(t.db);
    const held = await task(taskId);
    await refuses(update(held, { attemptId, state: 'completed' }), 'task_held', { holder: held.holder });
    expect((await update(held, { attemptId, epoch, state: 'completed' })).task).toMatchObject({ state: 'completed', holder: null });
    await refuses(update(await aTask(t.db), { state: 'failed' }), 'invalid_request');
    await refuses(update(await aTask(t.db), { state: 'completed', failureKind: 'timeout' }), 'invalid_request');
  });
});

test('a pending task is put off and brought forward; one that is worked on or has ended is not', async () => {
  const made = await aTask(t.db, { queue: 'later' });
  const runAt = '2099-01-01T00:00:00.000Z';
  const schedule = (taskId: string, at: string | null, expectedVersion?: number) =>
    queue().scheduleQueueTask({ tenantId, taskId, runAt: at, expectedVersion });

  await refuses(schedule(made.id, runAt, 7), 'task_version_conflict', { version: 1 });
  expect(await schedule(made.id, runAt, 1)).toMatchObject({ changed: true, task: { runAt, version: 2 } });
  expect(await schedule(made.id, runAt)).toMatchObject({ changed: false, task: { version: 2 } });
  expect(await claimTasks(t.db, { queue: 'later' })).toEqual([]);
  expect(await schedule(made.id, null)).toMatchObject({ changed: true, task: { runAt: null, readyInMs: null } });
  const [claimed] = await claimTasks(t.db, { queue: 'later' });
  expect(claimed?.taskId).toBe(made.id);
  await refuses(schedule(made.id, runAt), 'task_held');
  await settleQueueTask(t.db, { tenantId, taskId: made.id, epoch: 1, outcome: 'released', failureKind: 'timeout' });
  expect(await schedule(made.id, null)).toMatchObject({ changed: true, task: { readyInMs: null } }); // out of its back-off
  await passDelay(t.db, made.id);
  await queue().cancelQueueTask({ tenantId, taskId: made.id });
  await refuses(schedule(made.id, null), 'task_closed');
});
