import { CLAIM_LEASE_MS_MAX } from '@runplane/contracts';
import { ensureTenant, inTransaction, rawSql, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import {
  claimQueueTasks,
  createQueueTask,
  createQueueTasks,
  listQueueLanes,
  readyDueTasksOnce,
  renewQueueTask,
  renewQueueTasks,
  settleQueueTask,
  settleQueueTasks,
  sweepQueueLeasesOnce,
  waitForQueueTasks,
} from './index';
import { aClaimedTask, aTask, aWorker, claimTasks, endTaskLease, manyTasks, newQueueTask, passDelay } from './testing';

const t = useDatabase();
const tenantId = TENANT;
let queue = '';
let made = 0;

beforeAll(async () => {
  await makeTenants(t.db, 'other');
  await t.db.hub.start();
});
beforeEach(() => {
  queue = `q${(made += 1)}`;
});

const rawSetting = (name: string) => rawSql(`SET LOCAL ${name} = off`);
const rowOf = async (taskId: string) =>
  (
    await t.db.sql
      .query(sql`SELECT state::text AS "state", epoch AS "epoch", attempts AS "attempts", owner AS "owner", version::text AS "version", due AS "due",
      last_error AS "lastError", last_retry_index AS "index" FROM runplane.queue_tasks WHERE id = ${taskId}::text`)
  )[0];
const attemptsOf = async (taskId: string) =>
  (
    await t.db.sql.query(
      sql`SELECT state::text AS "state", failure_kind AS "kind" FROM runplane.queue_attempts_all WHERE task_id = ${taskId}::text ORDER BY retry_index`,
    )
  ).map(({ state, kind }) => (kind === null ? state : `${String(state)} ${String(kind)}`));

describe('making tasks', () => {
  test('a task comes back as it was made', async () => {
    const task = newQueueTask({ queue, priority: 5, references: [{ a: 1 }], metadata: { m: 1 }, sessionRef: { sessionId: 's/1' } });

    const { task: stored, replayed } = await createQueueTask(t.db, { tenantId, task });

    expect(replayed).toBe(false);
    expect(stored).toMatchObject({
      ...task,
      tenantId,
      lane: 'default',
      state: 'pending',
      version: 1,
      attempts: 0,
      maxAttempts: 3,
      latestAttempt: null,
    });
    expect(stored).toMatchObject({ sessionId: 's/1', sessionPath: '/v1/sessions/s%2F1', holder: null, readyInMs: null, lastError: null });
  });

  test('a key gives the same task again, whatever does not define its work, and refuses other work', async () => {
    const first = await createQueueTask(t.db, { tenantId, idempotencyKey: 'k1', task: newQueueTask({ queue }) });
    const again = await createQueueTask(t.db, {
      tenantId,
      idempotencyKey: 'k1',
      task: newQueueTask({ queue, title: 'another', priority: 9, metadata: { x: 1 }, runAt: '2099-01-01T00:00:00Z' }),
    });

    expect(again).toEqual({ task: first.task, replayed: true });
    const other = createQueueTask(t.db, { tenantId, idempotencyKey: 'k1', task: newQueueTask({ queue, payload: { n: 2 } }) });
    await expect(other).rejects.toMatchObject({ code: 'idempotency_conflict', data: { id: first.task.id } });
    const inNewLane = createQueueTask(t.db, { tenantId, idempotencyKey: 'k1', task: newQueueTask({ queue, lane: 'refused' }) });
    await expect(inNewLane).rejects.toMatchObject({ code: 'idempotency_conflict' });
    expect((await listQueueLanes(t.db, { tenantId, queue })).lanes.map(({ lane }) => lane)).not.toContain('refused');
    // the key is the project's and the tenant's
    const elsewhere = await createQueueTask(t.db, {
      tenantId: 'other',
      idempotencyKey: 'k1',
      task: newQueueTask({ queue, payload: { n: 3 } }),
    });
    expect(elsewhere.replayed).toBe(false);
  });

  test('twins of a key make one task, and neither sees an error', async () => {
    const twins = await Promise.all(
      Array.from({ length: 8 }, () => createQueueTask(t.db, { tenantId, idempotencyKey: 'twin', task: newQueueTask({ queue }) })),
    );

    expect(new Set(twins.map(({ task }) => task.id)).size).toBe(1);
    expect(twins.filter(({ replayed }) => !replayed)).toHaveLength(1);
  });

  test('a batch is made whole or not at all', async () => {
    const before = await createQueueTasks(t.db, { tenantId, tasks: [{ ...newQueueTask({ queue }), idempotencyKey: 'b1' }] });
    const mixed = await createQueueTasks(t.db, {
      tenantId,
      tasks: [
        newQueueTask({ queue }),
        { ...newQueueTask({ queue }), idempotencyKey: 'b1' },
        { ...newQueueTask({ queue }), idempotencyKey: 'b2' },
      ],
    });
    const broken = createQueueTasks(t.db, {
      tenantId,
      tasks: [
        { ...newQueueTask({ queue }), idempotencyKey: 'b3' },
        { ...newQueueTask({ queue, payload: {} }), idempotencyKey: 'b1' },
      ],
    });

    expect(mixed.tasks.map(({ replayed }) => replayed)).toEqual([false, true, false]);
    expect(mixed.tasks[1]?.taskId).toBe(before.tasks[0]?.taskId);
    await expect(broken).rejects.toMatchObject({ code: 'idempotency_conflict' });
    expect((await claimTasks(t.db, { queue, limit: 100 })).length).toBe(3);
    await expect(
      createQueueTasks(t.db, { tenantId, tasks: [0, 1].map(() => ({ ...newQueueTask({ queue }), idempotencyKey: 'same' })) }),
    ).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test.each([
    ['no tenant', { tenantId: 'nobody' }, 'tenant_not_found'],
    ['a payload that is no object', { task: newQueueTask({ payload: [] as never }) }, 'invalid_request'],
    ['a payload beyond a mebibyte', { task: newQueueTask({ payload: { x: 'x'.repeat(1024 * 1024) } }) }, 'payload_too_large'],
    ['a time without a zone', { task: newQueueTask({ runAt: '2030-01-01T00:00:00' }) }, 'invalid_request'],
    ['a key with a control character', { idempotencyKey: 'a\u0007' }, 'invalid_request'],
    ['an empty queue', { task: newQueueTask({ queue: '' }) }, 'invalid_request'],
  ])('%s is refused', async (_name, over, code) => {
    await expect(createQueueTask(t.db, { tenantId, task: newQueueTask(), ...over })).rejects.toMatchObject({ code });
  });
});

describe('claims', () => {
  test('come by priority, then by age, in a lane and over the lanes of a queue', async () => {
    const low = await aTask(t.db, { queue, lane: 'a', priority: 1 });
    const high = await aTask(t.db, { queue, lane: 'b', priority: 7 });
    const later = await aTask(t.db, { queue, lane: 'a', priority: 1 });
    const middle = await aTask(t.db, { queue, lane: 'a', priority: 3 });

    const [inLane] = await claimTasks(t.db, { queue, lane: 'a' });
    const rest = await claimTasks(t.db, { queue, limit: 10, leaseMs: undefined });

    expect(inLane?.taskId).toBe(middle.id);
    expect(rest.map(({ taskId }) => taskId)).toEqual([high.id, low.id, later.id]);
    expect(rest[0]).toMatchObject({ epoch: 1, attempts: 1, retryIndex: 0, payload: { n: 1 }, isRunnable: false, leaseRemainingMs: 30_000 });
    expect(await rowOf(high.id)).toMatchObject({ state: 'running', version: '2' });
    expect(await claimTasks(t.db, { queue, limit: 10 })).toEqual([]);
    expect(await claimTasks(t.db, { queue, tenantId: 'other' })).toEqual([]);
  });

  test('a task waits for its time, and is found then without a loop', async () => {
    const task = await aTask(t.db, { queue, runAt: new Date(Date.now() + 60 * 86_400_000).toISOString(), priority: 1_000 });
    const now = await aTask(t.db, { queue });

    expect((await claimTasks(t.db, { queue, limit: 5 })).map(({ taskId }) => taskId)).toEqual([now.id]);
    expect(await readyDueTasksOnce(t.db)).toEqual({ changed: 0 });
    await passDelay(t.db, task.id);
    expect((await claimTasks(t.db, { queue, limit: 5 })).map(({ taskId }) => taskId)).toEqual([task.id]);
    expect((await rowOf(task.id))?.['version']).toBe('2'); // the time alone is no change
  });

  test('a waiting claimer is woken by a new task, and by one that is given back', async () => {
    const waiting = waitForQueueTasks(t.db, { tenantId, queue, owner: aWorker(), waitMs: 10_000 });
    const task = await aTask(t.db, { queue });
    const [claimed] = await waiting;
    expect(claimed?.taskId).toBe(task.id);

    const next = waitForQueueTasks(t.db, { queue, owner: aWorker(), waitMs: 10_000, leaseMs: CLAIM_LEASE_MS_MAX }); // over all tenants
    await settleQueueTask(t.db, { tenantId, taskId: task.id, epoch: 1, outcome: 'released' });
    expect((await next)[0]).toMatchObject({ taskId: task.id, epoch: 3, attempts: 1, retryIndex: 1 });
    expect(await waitForQueueTasks(t.db, { tenantId, queue, owner: aWorker(), waitMs: 1 })).toEqual([]);
  });

  test('of 16 claimers at once each task has one', async () => {
    await manyTasks(t.db, 120, { queue });

    const claimed = (await Promise.all(Array.from({ length: 16 }, () => claimTasks(t.db, { queue, limit: 10 })))).flat();

    expect(claimed).toHaveLength(120);
    expect(new Set(claimed.map(({ taskId }) => taskId)).size).toBe(120);
  });
});

describe('whatever the plan', () => {
  const SETTINGS = [
    ['enable_hashjoin', 'enable_material'],
    ['enable_hashjoin', 'enable_mergejoin', 'enable_sort'],
    ['enable_nestloop', 'enable_indexscan'],
    ['enable_seqscan', 'enable_memoize', 'enable_hashagg'],
  ];
  test.each(SETTINGS)('a claim takes no more than it may: without %s and the like', async (...off) => {
    for (const [size, limit] of [
      [1, 1],
      [5, 1],
      [30, 3],
    ] as const) {
      const own = `${queue}-${size}`;
      await manyTasks(t.db, size, { queue: own });
      for (const lane of ['default', undefined]) {
        const claimed = await inTransaction(t.db, async (tx) => {
          for (const name of off.filter((given): given is string => typeof given === 'string')) await tx.query(rawSetting(name));
          return claimQueueTasks(tx, { tenantId, queue: own, lane, owner: aWorker(), limit });
        });
        expect(claimed.length).toBeLessThanOrEqual(limit);
        for (const { taskId, epoch } of claimed) await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });
      }
      const rows = await t.db.sql.query(
        sql`SELECT count(*)::int AS "n" FROM runplane.queue_tasks WHERE queue = ${own}::text AND state <> 'pending'`,
      );
      expect(rows[0]?.['n']).toBe(Math.min(2 * limit, size));
    }
  });
});

describe('a claim ends', () => {
  test.each(['completed', 'failed', 'blocked'] as const)('%s, once, and a repeat is a repeat', async (outcome) => {
    const { taskId, epoch } = await aClaimedTask(t.db);
    const failure = outcome === 'completed' ? {} : { failureKind: 'backend-failed', failureMessage: 'no luck' };
    const settlement = { tenantId, taskId, epoch, outcome, ...failure };

    expect(await settleQueueTask(t.db, settlement)).toEqual({ taskId, state: outcome, replayed: false });
    expect(await settleQueueTask(t.db, settlement)).toEqual({ taskId, state: outcome, replayed: true });
    await expect(settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'released' })).rejects.toMatchObject({
      code: 'task_claim_lost',
    });
    expect(await attemptsOf(taskId)).toEqual([outcome === 'completed' ? 'completed' : `${outcome} backend-failed`]);
  });

  test('given back without a failure: claimable at once, the try does not count, the old epoch is fenced', async () => {
    const { taskId, epoch, ...task } = await aClaimedTask(t.db);

    await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'released' });

    expect(await rowOf(taskId)).toMatchObject({ state: 'pending', epoch: 2, attempts: 0, due: true, owner: null });
    expect(await attemptsOf(taskId)).toEqual(['cancelled released']);
    await expect(settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' })).rejects.toMatchObject({
      code: 'task_claim_lost',
      data: { currentEpoch: 2, state: 'pending' },
    });
    const [again] = await claimTasks(t.db, { queue: task.queue });
    expect(again).toMatchObject({ taskId, epoch: 3, attempts: 1 });
  });

  test('given back with a failure: after a back-off, until the last try fails the task', async () => {
    const { taskId, epoch, queue: own } = await aClaimedTask(t.db, { maxAttempts: 2 });
    const failure = { failureKind: 'timeout', failureMessage: 'password=hunter2 slow' };

    await settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'released', ...failure });
    expect(await rowOf(taskId)).toMatchObject({
      state: 'pending',
      attempts: 1,
      due: false,
      lastError: expect.not.stringContaining('hunter2'),
    });
    await t.db.sql.query(sql`UPDATE runplane.queue_tasks SET ready_at = ready_at + interval '1 hour' WHERE id = ${taskId}::text`); // a long one
    expect(await claimTasks(t.db, { queue: own })).toEqual([]);
    await passDelay(t.db, taskId);
    const [second] = await claimTasks(t.db, { queue: own });
    const ended = await settleQueueTask(t.db, { tenantId, taskId, epoch: second?.epoch ?? 0, outcome: 'released', ...failure });

    expect(ended.state).toBe('failed');
    expect(await attemptsOf(taskId)).toEqual(['failed timeout', 'failed timeout']);
  });

  test('with its lease: nobody prolongs or ends it any more, and a sweep takes it back until its tries are used up', async () => {
    const { taskId, epoch, queue: own } = await aClaimedTask(t.db, { maxAttempts: 1 });
    expect(await renewQueueTask(t.db, { tenantId, taskId, epoch, leaseMs: 60_000 })).toEqual({ taskId, leaseRemainingMs: 60_000 });
    await endTaskLease(t.db, taskId);

    await expect(renewQueueTask(t.db, { tenantId, taskId, epoch })).rejects.toMatchObject({ code: 'task_claim_lost' });
    await expect(settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' })).rejects.toMatchObject({
      code: 'task_claim_lost',
    });
    expect(await claimTasks(t.db, { queue: own })).toEqual([]);
    expect((await sweepQueueLeasesOnce(t.db)).changed).toBe(1);

    expect(await rowOf(taskId)).toMatchObject({ state: 'failed', owner: null });
    expect(await attemptsOf(taskId)).toEqual(['failed runner-lost']);
    expect((await sweepQueueLeasesOnce(t.db)).changed).toBe(0);
  });

  test('in batches: a verdict for each, in the order of the call', async () => {
    const tasks = await manyTasks(t.db, 4, { queue });
    const claimed = await claimTasks(t.db, { queue, limit: 4 });
    const epoch = 1;
    const [a = '', b = '', c = '', d = ''] = tasks;
    expect(claimed.map(({ taskId }) => taskId)).toEqual(tasks);

    const renewed = await renewQueueTasks(t.db, {
      tenantId,
      claims: [
        { taskId: b, epoch },
        { taskId: 'qt_none', epoch },
        { taskId: a, epoch: 9 },
      ],
    });
    const settled = await settleQueueTasks(t.db, {
      tenantId,
      settlements: [
        { taskId: d, epoch, outcome: 'completed' },
        { taskId: a, epoch, outcome: 'failed', failureKind: 'timeout' },
        { taskId: 'qt_none', epoch, outcome: 'completed' },
        { taskId: b, epoch: 9, outcome: 'completed' },
        { taskId: c, epoch, outcome: 'released', delayMs: 60_000 },
      ],
    });
    const foreign = await settleQueueTasks(t.db, { tenantId: 'other', settlements: [{ taskId: b, epoch, outcome: 'completed' }] });

    expect(renewed.map(({ verdict }) => verdict)).toEqual(['ok', 'not_found', 'claim_lost']);
    expect(settled.map(({ verdict, state }) => [verdict, state])).toEqual([
      ['ok', 'completed'],
      ['ok', 'failed'],
      ['not_found', null],
      ['claim_lost', 'running'],
      ['ok', 'pending'],
    ]);
    expect(foreign.map(({ verdict }) => verdict)).toEqual(['not_found']);
    expect(await rowOf(c)).toMatchObject({ due: false, attempts: 0 });
  });

  test('inside a transaction of the caller, and back with it', async () => {
    const { taskId, epoch } = await aClaimedTask(t.db);

    const undone = inTransaction(t.db, async (tx) => {
      await settleQueueTask(tx, { tenantId, taskId, epoch, outcome: 'completed' });
      await createQueueTask(tx, { tenantId, task: newQueueTask({ queue }) });
      throw new Error('no');
    });

    await expect(undone).rejects.toThrow('no');
    expect((await rowOf(taskId))?.['state']).toBe('running');
    expect(await claimTasks(t.db, { queue })).toEqual([]);
  });
});

describe('tenants take turns', () => {
  const everybody = (limit = 1) => claimQueueTasks(t.db, { queue, owner: aWorker(), limit });

  test('with 10,000 ready tasks of one tenant and one of another, the other’s is among the next four', async () => {
    await manyTasks(t.db, 10_000, { queue, priority: 100 });
    await everybody();
    const [theirs] = await manyTasks(t.db, 1, { queue }, 'other');

    const next = [await everybody(), await everybody(), await everybody(), await everybody()].flat();

    expect(next.map(({ taskId }) => taskId)).toContain(theirs);
    expect((await everybody(100)).every((task) => task.tenantId === TENANT)).toBe(true);
  });

  test('twenty tenants with equal load get equal shares, also of batches and claimers at once', async () => {
    const tenants = Array.from({ length: 20 }, (_, n) => `fair-${n}`);
    for (const tenant of tenants) {
      await ensureTenant(t.db.sql, tenant);
      for (const lane of ['a', 'b']) await manyTasks(t.db, 30, { queue, lane }, tenant);
    }

    const shares = new Map(tenants.map((tenant) => [tenant, 0]));
    const count = (claimed: Awaited<ReturnType<typeof everybody>>): void => {
      for (const { tenantId: of } of claimed) shares.set(of, (shares.get(of) ?? 0) + 1);
    };
    for (let round = 0; round < 10; round += 1) for (const claimed of await Promise.all([3, 7, 1, 10].map(everybody))) count(claimed);

    const counts = [...shares.values()];
    expect(counts.reduce((sum, n) => sum + n, 0)).toBe(210);
    expect(Math.max(...counts) / Math.min(...counts)).toBeLessThanOrEqual(1.5);
  });
});
