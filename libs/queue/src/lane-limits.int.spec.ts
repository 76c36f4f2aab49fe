import { inTransaction, sql } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import {
  claimQueueTasks,
  createQueueTask,
  listQueueLanes,
  runQueueTask,
  setLaneLimit,
  settleQueueTask,
  sweepQueueLeasesOnce,
  cancelQueueTask,
} from './index';
import { aTask, aWorker, claimTasks, endTaskLease, manyTasks, newQueueTask, RUNNABLE } from './testing';

const t = useDatabase();
const tenantId = TENANT;
let queue = '';
let made = 0;

beforeAll(() => makeTenants(t.db, 'other'));
beforeEach(() => {
  queue = `limits${(made += 1)}`;
});

const limit = (maxRunning: number | null, lane: string | null = null) =>
  inTransaction(t.db, (tx) => setLaneLimit(tx, { tenantId, queue, lane, maxRunning }));
const running = async (): Promise<Record<string, number | null>> =>
  Object.fromEntries((await listQueueLanes(t.db, { tenantId, queue })).lanes.map(({ lane, running: n }) => [lane ?? 'whole', n]));
const end = (taskId: string, epoch = 1) => settleQueueTask(t.db, { tenantId, taskId, epoch, outcome: 'completed' });

test('a lane and its queue are full at their limits, whatever waits, and take on as tasks end', async () => {
  for (const lane of ['a', 'b', 'c']) await manyTasks(t.db, 5, { queue, lane });
  await limit(2, 'a');
  await limit(4);

  const first = await claimTasks(t.db, { queue, limit: 100 });
  const none = await claimTasks(t.db, { queue, limit: 100 });

  expect(first.map(({ lane }) => lane).filter((lane) => lane === 'a')).toHaveLength(2);
  expect(first).toHaveLength(4);
  expect(none).toEqual([]);
  expect(await running()).toEqual({ whole: 4, a: 2, b: null, c: null });

  const [fromA] = first.filter(({ lane }) => lane === 'a');
  await end(fromA?.taskId ?? '');
  expect(await claimTasks(t.db, { queue, lane: 'b', limit: 100 })).toHaveLength(1);
  expect(await claimTasks(t.db, { queue, lane: 'a' })).toEqual([]); // the queue is full again
});

test('what runs when a limit is set counts, and a limit that is taken away leaves no count behind', async () => {
  const tasks = await manyTasks(t.db, 6, { queue });
  await claimTasks(t.db, { queue, limit: 3 });

  expect((await limit(2, 'default')).running).toBe(3);
  expect(await claimTasks(t.db, { queue, limit: 100 })).toEqual([]);
  for (const taskId of tasks.slice(0, 2)) await end(taskId);
  expect(await claimTasks(t.db, { queue, limit: 100 })).toHaveLength(1);

  await limit(null, 'default');
  expect(await claimTasks(t.db, { queue, limit: 100 })).toHaveLength(2);
  for (const taskId of tasks.slice(2)) await end(taskId);
  expect(await running()).toEqual({ default: null });
});

test('every way in which a task stops running gives its place back', async () => {
  await limit(1, 'default');
  const claimed = async () => {
    await aTask(t.db, { queue, ...RUNNABLE });
    const [task] = await claimTasks(t.db, { queue });
    expect(await claimTasks(t.db, { queue })).toEqual([]);
    expect((await running())['default']).toBe(1);
    return task?.taskId ?? '';
  };

  await end(await claimed());
  await settleQueueTask(t.db, { tenantId, taskId: await claimed(), epoch: 1, outcome: 'released', delayMs: 86_400_000 });
  const lost = await claimed();
  await endTaskLease(t.db, lost);
  await sweepQueueLeasesOnce(t.db);
  const cancelled = await claimed();
  await inTransaction(t.db, (tx) => cancelQueueTask(tx, { tenantId, taskId: cancelled }));

  expect((await running())['default']).toBe(0);
});

test('a start as a run keeps to the limit too', async () => {
  await limit(1, 'default');
  const [one, two] = [await aTask(t.db, { queue, ...RUNNABLE }), await aTask(t.db, { queue, ...RUNNABLE })];

  await inTransaction(t.db, (tx) => runQueueTask(tx, { tenantId, taskId: one.id }));
  const full = inTransaction(t.db, (tx) => runQueueTask(tx, { tenantId, taskId: two.id }));

  await expect(full).rejects.toMatchObject({ code: 'lane_full', data: { maxRunning: 1, lane: 'default' } });
  expect((await running())['default']).toBe(1);
});

test('ten claimers at once never exceed a limit of two, in a lane and over the lanes of a queue', async () => {
  await limit(2, 'default');
  const observer = await openClient(t.url);
  await manyTasks(t.db, 60, { queue });
  const seen: number[] = [];
  let done = false;
  const look = async (): Promise<void> => {
    const { rows } = await observer.query(`SELECT count(*)::int AS n FROM runplane.queue_tasks WHERE queue = $1 AND state = 'running'`, [
      queue,
    ]);
    seen.push(rows[0].n);
  };
  const looking = (async () => {
    while (!done) await look();
  })();
  let ended = 0;

  await Promise.all(
    Array.from({ length: 10 }, async (_, n) => {
      while (ended < 60) {
        const claimed = await claimQueueTasks(t.db, {
          queue,
          owner: aWorker(),
          limit: 3,
          ...(n % 3 === 2 ? {} : { tenantId }),
          ...(n % 3 === 0 ? { lane: 'default' } : {}),
        });
        if (claimed.length === 2) await look(); // the limit is reached now, whatever the looks beside see
        for (const { taskId, epoch } of claimed) await end(taskId, epoch);
        ended += claimed.length;
      }
    }),
  );
  done = true;
  await looking;
  await observer.end();

  expect(Math.max(...seen)).toBe(2);
  expect(ended).toBe(60);
});

test('a claimer waits for a rival that has not committed, and counts it', async () => {
  await limit(1, 'default');
  await manyTasks(t.db, 2, { queue });
  let release = (): void => undefined;
  const pause = new Promise<void>((resolve) => {
    release = resolve;
  });
  let hasClaimed = (): void => undefined;
  const claimedFirst = new Promise<void>((resolve) => {
    hasClaimed = resolve;
  });

  const first = inTransaction(t.db, async (tx) => {
    const claimed = await claimQueueTasks(tx, { tenantId, queue, owner: aWorker() });
    hasClaimed();
    await pause;
    return claimed;
  });
  await claimedFirst;
  const second = claimTasks(t.db, { queue, limit: 2 });
  await waitUntilBlocked(t.db, 1);
  release();

  expect(await first).toHaveLength(1);
  expect(await second).toEqual([]);
});

test('limits are a tenant’s own, and lanes are listed page by page', async () => {
  await limit(1);
  await createQueueTask(t.db, { tenantId: 'other', task: newQueueTask({ queue, lane: 'x' }) });
  await manyTasks(t.db, 3, { queue }, 'other');
  for (const lane of ['c', 'a', 'b']) await aTask(t.db, { queue, lane });

  expect(await claimQueueTasks(t.db, { tenantId: 'other', queue, owner: aWorker(), limit: 10 })).toHaveLength(4);
  const page = await listQueueLanes(t.db, { tenantId, queue, limit: 2 });
  const rest = await listQueueLanes(t.db, { tenantId, queue, limit: 5, cursor: page.cursor ?? '' });
  expect([...page.lanes, ...rest.lanes].map(({ lane }) => lane)).toEqual([null, 'a', 'b', 'c']);
  expect(rest.cursor).toBeNull();
  await expect(limit(0)).rejects.toMatchObject({ code: 'invalid_request' });
  expect(await t.db.sql.query(sql`SELECT 1 AS "n" FROM runplane.queue_lanes WHERE running < 0`)).toEqual([]);
});
