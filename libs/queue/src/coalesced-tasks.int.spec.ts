import { DatabaseUnavailable, TransactionConflict } from '@runplane/contracts';
import { inTransaction, openDb, type Db, type SqlExecutor } from '@runplane/database';
import { openClient, useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { groupsOf, SHARED_CLAIM_MAX, type ScopedClaim } from './claim-coalescer';
import {
  claimQueueTasks,
  createQueueTask,
  createQueueTasks,
  getQueueTask,
  setLaneLimit,
  settleQueueTask,
  settleQueueTasks,
  sweepQueueLeasesOnce,
} from './index';
import { endTaskLease } from './testing';

// Calls of one task each that arrive together share a statement, and get what they would have got by themselves.

const tenantId = TENANT;
const store = useDatabase();
beforeAll(() => makeTenants(store.db, 'other'));

const together = (kind: string) => store.db.coalescers.get(kind)?.stats.together ?? 0;
const times = <T>(n: number, call: (place: number) => Promise<T>) => Promise.all(Array.from({ length: n }, (_, place) => call(place)));
const codeOf = (error: unknown) => (error as { code?: string }).code;
const task = (queue: string, title = 'work') => ({ projectId: 'p', queue, lane: 'main', title, payload: {} });
const claim = (queue: string, owner: string, limit = 1) =>
  claimQueueTasks(store.db, { tenantId, queue, lane: 'main', owner, limit, leaseMs: 20_000 });

test('tasks that are made together are there, for their tenants; one of no tenant is refused by itself', async () => {
  const made = await times(24, (place) =>
    createQueueTask(store.db, { tenantId: ['other', tenantId, 'nobody'][place % 3] ?? '', task: task('made', `${place}`) }).catch(codeOf),
  );
  made.forEach((answer, place) => {
    if (place % 3 === 2) expect(answer).toBe('tenant_not_found');
    else
      expect(answer).toMatchObject({
        replayed: false,
        task: { tenantId: ['other', tenantId][place % 3], title: `${place}`, state: 'pending' },
      });
  });
  expect(together('queue-create')).toBeGreaterThan(8);
  const mistaken = times(2, (place) =>
    createQueueTask(store.db, { tenantId: ['a\nb', tenantId][place] ?? '', task: task('made') }).catch(String),
  );
  expect(await mistaken).toEqual([expect.stringContaining('TenantNotFound'), expect.objectContaining({ replayed: false })]);
});

test('all that is large of a task counts for what a process holds and sends at once', async () => {
  const large = { text: 'x'.repeat(10_000) };
  const refs = { workspaceRef: large, executionPolicy: large, resourceBundleRef: large, references: [large], metadata: large };
  const making = createQueueTask(store.db, { tenantId, task: { ...task('large'), ...refs } });
  expect(store.db.coalescers.get('queue-create')?.stats.waitingBytes).toBeGreaterThan(50_000);
  await making;
});

test('claims of one task each give each claimer its own, first come, first task, under its own name and lease', async () => {
  await createQueueTasks(store.db, { tenantId, tasks: Array.from({ length: 30 }, (_, place) => task('claimed', `${place}`)) });
  const before = together('queue-claim');
  const claimed = (await times(24, (place) => claim('claimed', `worker ${place}`))).flat();
  expect(new Set(claimed.map(({ taskId }) => taskId)).size).toBe(24);
  expect(together('queue-claim') - before).toBeGreaterThan(8);
  const { rows } = await store.db.pool.query<{ id: string; owner: string }>(
    `SELECT t.id, t.owner FROM runplane.queue_tasks t JOIN runplane.queue_attempts_all a ON a.task_id = t.id AND a.owner = t.owner AND a.epoch = t.epoch
     WHERE t.queue = 'claimed' AND t.owner IS NOT NULL AND t.expires_at > runplane.app_now() + interval '5 seconds'`,
  );
  expect(new Map(rows.map(({ id, owner }) => [id, owner]))).toEqual(
    new Map(claimed.map(({ taskId }, place) => [taskId, `worker ${place}`])),
  );

  expect((await times(24, (place) => claim('claimed', `late ${place}`))).flat()).toHaveLength(6);
});

test('ends of one claim each are told apart: done, done before, lost, unknown; one that somebody holds delays nobody else', async () => {
  await createQueueTasks(store.db, { tenantId, tasks: Array.from({ length: 20 }, () => task('ended')) });
  const claimed = await claim('ended', 'worker', 20);
  const end = (taskId = '', epoch = 1) =>
    settleQueueTask(store.db, { tenantId, taskId, epoch, outcome: 'completed' }).then(
      ({ replayed }) => (replayed ? 'replayed' : 'ok'),
      codeOf,
    );
  const [held, first, lost] = claimed.map(({ taskId }) => taskId);
  expect(await end(first)).toBe('ok');

  const client = await openClient(store.url);
  try {
    await client.query('BEGIN');
    await client.query('SELECT FROM runplane.queue_tasks WHERE id = $1 FOR UPDATE', [held]);
    const rest = claimed.slice(3).map(({ taskId }) => taskId);
    const before = [end(first), end(lost, 7), end('qt_unknown'), ...rest.slice(0, 5).map((taskId) => end(taskId))];
    const waiting = end(held);
    const behind = rest.slice(5).map((taskId) => end(taskId));
    expect(await Promise.all([...before, ...behind])).toEqual(['replayed', 'task_claim_lost', 'task_not_found', ...rest.map(() => 'ok')]);
    await client.query('ROLLBACK');
    expect(await waiting).toBe('ok');
  } finally {
    await client.end();
  }
  expect(together('queue-settle')).toBeGreaterThan(8);
});

test('a lane that somebody holds for long is to the harm of nobody whose tasks it does not count', async () => {
  const db = await openDb({ url: store.url, lockTimeoutMs: 300 });
  const client = await openClient(store.url);
  try {
    // Both are counted: what no lane counts is completed before a lane is asked for.
    for (const queue of ['narrow', 'wide'])
      await inTransaction(db, (tx) => setLaneLimit(tx, { tenantId, queue, lane: 'main', maxRunning: 6 }));
    await createQueueTasks(db, { tenantId, tasks: Array.from({ length: 9 }, (_, place) => task(place < 3 ? 'narrow' : 'wide')) });
    const [stuck = [], free = []] = [await claim('narrow', 'worker', 5), await claim('wide', 'worker', 6)];
    const end = ({ taskId, epoch }: { taskId: string; epoch: number }) =>
      settleQueueTask(db, { tenantId, taskId, epoch, outcome: 'completed' }).then(({ state }) => state, codeOf);
    await client.query('BEGIN');
    await client.query(`SELECT FROM runplane.queue_lanes WHERE queue = 'narrow' FOR UPDATE`);
    const [silent, ...ending] = free;
    for (const { taskId } of [...stuck.slice(2), ...free.slice(0, 1)]) await endTaskLease(db, taskId);
    const ends = await Promise.all([...stuck.slice(0, 1), ...ending].map(end));
    expect(ends).toEqual(['lock_timeout', ...ending.map(() => 'completed')]);
    await sweepQueueLeasesOnce(db);
    expect(await getQueueTask(db, { tenantId, taskId: silent?.taskId ?? '' })).toMatchObject({ state: 'pending', attempts: 1 });
    await client.query('ROLLBACK');
    expect(await Promise.all(stuck.map(end))).toEqual(['completed', 'completed', 'task_claim_lost']);
  } finally {
    await client.end();
    await db.close();
  }
});

test('a claim that waits for a lane which somebody holds keeps no other waiting', async () => {
  const db = await openDb({ url: store.url, lockTimeoutMs: 14_000 });
  const client = await openClient(store.url);
  const claimOf = (queue: string) => claimQueueTasks(db, { tenantId, queue, lane: 'main', owner: 'w' });
  try {
    await inTransaction(db, (tx) => setLaneLimit(tx, { tenantId, queue: 'held', lane: 'main', maxRunning: 5 }));
    await createQueueTasks(db, { tenantId, tasks: [task('held'), task('open'), task('open')] });
    await client.query('BEGIN');
    await client.query(`SELECT FROM runplane.queue_lanes WHERE queue = 'held' FOR UPDATE`);
    const waiting = claimOf('held');
    expect(await claimOf('open')).toHaveLength(1);
    expect(await claimOf('open')).toHaveLength(1);
    await client.query('ROLLBACK');
    expect(await waiting).toHaveLength(1);
  } finally {
    await client.end();
    await db.close();
  }
});

/** A handle whose second statement is not carried out; it has coalescers of its own. */
function failingSecond(error: Error): Db {
  let calls = 0;
  const query: SqlExecutor['query'] = (statement) => ((calls += 1) === 2 ? Promise.reject(error) : store.db.sql.query(statement));
  return Object.create(store.db, { sql: { value: { query } }, coalescers: { value: new Map() } }) as Db;
}

test('ends that go together are done or not each by itself, also when the statement for those that are more than completed fails', async () => {
  await createQueueTasks(store.db, { tenantId, tasks: Array.from({ length: 6 }, () => task('cut')) });
  const claimed = await claim('cut', 'worker', 6);
  const twoEnds = (db: Db, [a, b] = claimed.splice(0, 2)) =>
    [
      { tenantId, taskId: a?.taskId ?? '', epoch: 1, outcome: 'completed' as const },
      { tenantId, taskId: b?.taskId ?? '', epoch: 1, outcome: 'failed' as const, failureKind: 'timeout' },
    ].map((end) => settleQueueTask(db, end).catch(codeOf));

  expect(await Promise.all(twoEnds(failingSecond(new DatabaseUnavailable())))).toEqual([
    expect.objectContaining({ state: 'completed', replayed: false }),
    'database_unavailable',
  ]);
  expect(await Promise.all(twoEnds(failingSecond(new TransactionConflict('a deadlock', { attempts: 1 }))))).toMatchObject([
    { state: 'completed', replayed: false },
    { state: 'failed', replayed: false },
  ]);

  // In one call of several: something was written.
  const settlements = claimed.map(({ taskId }, place) => ({
    taskId,
    epoch: 1,
    outcome: (['completed', 'released'] as const)[place % 2] ?? 'completed',
  }));
  expect(await settleQueueTasks(failingSecond(new DatabaseUnavailable()), { tenantId, settlements }).catch(codeOf)).toBe('outcome_unknown');
  expect(await settleQueueTasks(store.db, { tenantId, settlements })).toMatchObject([{ verdict: 'replayed' }, { verdict: 'ok' }]);
});

test('a claim that has got something tells it, whatever becomes of the look for more', async () => {
  await createQueueTask(store.db, { tenantId, task: task('partly') });
  let calls = 0;
  const query: SqlExecutor['query'] = (statement) =>
    (calls += 1) === 1 ? store.db.sql.query(statement) : Promise.reject(new DatabaseUnavailable());
  const db = Object.create(store.db, { sql: { value: { query } } }) as Db;
  const claimed = () => claimQueueTasks(db, { tenantId, queue: 'partly', owner: 'w', limit: SHARED_CLAIM_MAX + 1 });
  expect(await claimed()).toHaveLength(1);
  calls = 0;
  await expect(claimed()).rejects.toThrow(DatabaseUnavailable);
});

test('switched off, each call has a statement of its own', async () => {
  const db = await openDb({ url: store.url, coalesce: false });
  try {
    await times(12, () => createQueueTask(db, { tenantId, task: task('apart') }));
    const claimed = (await times(12, (place) => claimQueueTasks(db, { tenantId, queue: 'apart', owner: `${place}` }))).flat();
    await times(claimed.length, (place) => {
      const { taskId, epoch } = claimed[place] ?? { taskId: '', epoch: 0 };
      return settleQueueTask(db, { tenantId, taskId, epoch, outcome: 'completed' });
    });
    expect(db.coalescers.size).toBe(0);
  } finally {
    await db.close();
  }
});

test('claims share a statement when tenant, queue and lane are the same, and no more tasks than one statement takes', () => {
  const scoped = (name: string, limit: number, tenant?: string): ScopedClaim => ({
    tenantId: tenant,
    claim: { queue: name, limit, owner: 'w', leaseMs: 1_000 },
  });
  const sizes = (...claims: ScopedClaim[]) =>
    groupsOf(claims).map((group) => group.map(({ claim: { queue, limit } }) => `${queue}${limit}`));
  expect(sizes()).toEqual([]);
  expect(sizes(scoped('a', 1), scoped('b', 2), scoped('a', 3))).toEqual([['a1', 'a3'], ['b2']]);
  expect(sizes(scoped('a', 1, 't'), scoped('a', 1, 'u'), scoped('a', 1))).toEqual([['a1'], ['a1'], ['a1']]);
  expect(sizes(...Array.from({ length: 5 }, () => scoped('a', 4)))).toEqual([['a4', 'a4', 'a4', 'a4'], ['a4']]);
});
