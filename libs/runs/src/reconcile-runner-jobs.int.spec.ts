import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import {
  cancelRun,
  claimRun,
  dispatchOnce,
  getRun,
  getRunnerJob,
  JobHidden,
  reconcileRunnerJobsOnce,
  type Launcher,
  type ListedJob,
  type ObservedJob,
  type RecordedJob,
} from './index';
import { aRunner, aTurn, makeTenants, newRun, story, TENANT } from './testing';

// What reconciliation makes of what a launcher says. The launchers themselves: process-launcher.spec.ts, tests/scenarios/kubernetes-launcher.spec.ts.

const errors: string[] = [];
const store = useDatabase({ db: { onError: (error, where) => errors.push(`${where}: ${error.message}`) } });
beforeAll(() => makeTenants(store.db));
beforeEach(() => errors.splice(0));
const tenantId = TENANT;

/** A launcher of a kind of its own, so that a pass sees the jobs of one test; says what the test tells it to. */
function launcherOf(kind: string, says: Partial<Launcher> & { find: (job: RecordedJob) => Promise<ObservedJob> }): Launcher {
  return {
    kind,
    launch: ({ runId }) => Promise.resolve({ outcome: 'created', jobName: `job of ${runId}`, result: { started: true } }),
    ...says,
  };
}

async function aLaunchedTurn(launcher: Launcher, run = newRun()) {
  const { run: made, intent } = await aTurn(store.db, undefined, { run });
  await dispatchOnce(store.db, { launcher, owner: 'd' });
  return { key: { tenantId, runId: made.id }, jobId: intent?.runnerJobId ?? '' };
}
const reconcile = (launcher: Launcher) => reconcileRunnerJobsOnce(store.db, { launcher, restMs: 0 });
const jobOf = (jobId: string) => getRunnerJob(store.db, { tenantId, jobId });

test.each<[string, ObservedJob, Partial<ReturnType<typeof newRun>>, { status: string; failure?: object | null }, object]>([
  [
    'that has failed',
    { state: 'failed', reason: 'Evicted', message: 'low on memory; password=hunter2' },
    {},
    {
      status: 'failed',
      failure: { kind: 'infra-failed', message: expect.stringContaining('Evicted: low on memory; password=[redacted]') },
    },
    { ended: { state: 'failed', reason: 'Evicted', message: 'low on memory; password=[redacted]' } },
  ],
  [
    'that has ended well without a claim',
    { state: 'succeeded' },
    {},
    { status: 'failed', failure: { kind: 'infra-failed' } },
    { ended: { state: 'succeeded' } },
  ],
  [
    'that is gone',
    { state: 'gone' },
    {},
    { status: 'failed', failure: { kind: 'runner-lost' } },
    { ended: { state: 'gone' }, started: true },
  ],
  [
    'that is gone, of a run that may be repeated',
    { state: 'gone' },
    { onRunnerLost: 'requeue' },
    { status: 'pending', failure: null },
    { ended: { state: 'gone' } },
  ],
  ['that is active', { state: 'active' }, {}, { status: 'pending' }, { started: true }],
  ['that nobody here can tell of', { state: 'unknown' }, {}, { status: 'pending' }, { started: true }],
])('a job %s', async (what, observed, run, expected, result) => {
  const launcher = launcherOf(what, { find: () => Promise.resolve(observed) });
  const { key, jobId } = await aLaunchedTurn(launcher, newRun(run));

  const first = await reconcile(launcher);
  const before = await story(store.db, key.runId);
  const second = await reconcile(launcher);

  const isEnd = observed.state !== 'active' && observed.state !== 'unknown';
  expect([first, second]).toEqual([
    { changed: isEnd ? 1 : 0, failed: 0 },
    { changed: 0, failed: 0 },
  ]);
  expect(await getRun(store.db, key)).toMatchObject(expected);
  expect(await story(store.db, key.runId)).toEqual(before);
  expect(before.includes('runner-dispatch-lost')).toBe(isEnd);
  expect(await jobOf(jobId)).toMatchObject({ result, settledAt: expected.status === 'failed' ? expect.any(String) : null });
});

test('a claimed run is left to its lease, and its job is recorded all the same', async () => {
  const launcher = launcherOf('claimed', { find: () => Promise.resolve({ state: 'failed', reason: 'OOMKilled' }) });
  const { key, jobId } = await aLaunchedTurn(launcher);
  await claimRun(store.db, { ...key, runnerId: aRunner() });

  expect(await reconcile(launcher)).toEqual({ changed: 0, failed: 0 });

  expect(await getRun(store.db, key)).toMatchObject({ status: 'claimed' });
  expect(await jobOf(jobId)).toMatchObject({ result: { ended: { state: 'failed', reason: 'OOMKilled' } }, settledAt: null });
});

test('a launcher that does not answer is asked no further, tells nothing, and hides no other launcher', async () => {
  let asked = 0;
  const down = launcherOf('down', {
    find: () => {
      asked += 1;
      return Promise.reject(new Error('no answer'));
    },
  });
  const up = launcherOf('up', { find: () => Promise.resolve({ state: 'gone' }) });
  const lists = launcherOf('no-list', { find: () => Promise.resolve({ state: 'gone' }), list: () => Promise.reject(new Error('no list')) });
  const [silent, , lost, unlisted] = [
    await aLaunchedTurn(down),
    await aLaunchedTurn(down),
    await aLaunchedTurn(up),
    await aLaunchedTurn(lists),
  ];

  const report = await reconcile({ kind: 'all', launch: up.launch, parts: [down, lists, up] });

  expect(report).toEqual({ changed: 1, failed: 2 });
  expect(asked).toBe(1);
  expect(errors).toEqual([expect.stringContaining('no answer'), expect.stringContaining('no list')]);
  for (const { key } of [silent, unlisted]) expect(await getRun(store.db, key)).toMatchObject({ status: 'pending' });
  expect(await getRun(store.db, lost.key)).toMatchObject({ status: 'failed' });
});

test('a job that can never be asked about does not hide those behind it', async () => {
  const first = { id: '' };
  const launcher = launcherOf('one bad', {
    find: ({ runnerJobId }) => {
      first.id ||= runnerJobId;
      return runnerJobId === first.id ? Promise.reject(new Error('forbidden')) : Promise.resolve({ state: 'gone' });
    },
  });
  const both = [await aLaunchedTurn(launcher), await aLaunchedTurn(launcher)];
  await store.db.pool.query(`UPDATE runplane.runner_jobs SET last_checked_at = created_at - interval '1 hour' WHERE launcher = 'one bad'`);

  expect([await reconcile(launcher), await reconcile(launcher)]).toEqual([
    { changed: 0, failed: 1 },
    { changed: 1, failed: 1 },
  ]);

  const [hidden] = both.filter(({ jobId }) => jobId !== first.id);
  expect(await getRun(store.db, hidden?.key ?? { tenantId, runId: '' })).toMatchObject({ status: 'failed' });
});

test('a place that cannot be listed, and a job that is hidden, are told of and skipped', async () => {
  const hidden = new Set<string>();
  const launcher = launcherOf('partly hidden', {
    find: ({ runnerJobId }) => (hidden.has(runnerJobId) ? Promise.reject(new JobHidden('forbidden')) : Promise.resolve({ state: 'gone' })),
    list: (options) => {
      options?.onFailure?.('the Jobs in secret', new Error('jobs is forbidden'));
      return Promise.resolve([]);
    },
  });
  const launched = [await aLaunchedTurn(launcher), await aLaunchedTurn(launcher), await aLaunchedTurn(launcher)];
  for (const { jobId } of launched.slice(0, 2)) hidden.add(jobId);

  expect(await reconcile(launcher)).toEqual({ changed: 1, failed: 3 });

  expect(errors).toEqual(expect.arrayContaining([expect.stringContaining('the Jobs in secret'), expect.stringContaining('forbidden')]));
  const states = await Promise.all(launched.map(({ key }) => getRun(store.db, key).then(({ status }) => status)));
  expect(states).toEqual(['pending', 'pending', 'failed']);
});

test('a launcher that cannot follow its job to its end is told of, and harms nobody', async () => {
  const launcher = launcherOf('no end', { find: () => Promise.resolve({ state: 'active' }) });
  const launch: Launcher['launch'] = () =>
    Promise.resolve({ outcome: 'created', jobName: 'j', result: {}, ended: Promise.reject(new Error('lost sight of it')) });

  const { key } = await aLaunchedTurn({ ...launcher, launch });

  expect(await getRun(store.db, key)).toMatchObject({ status: 'pending' });
  expect(errors).toEqual([expect.stringContaining('lost sight of it')]);
});

test('the outside is asked while no transaction is open and no row is locked', async () => {
  const seen: unknown[] = [];
  const look = async () => {
    const { rows } = await store.db.pool.query(
      `SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`,
    );
    const locked = await store.db.pool.query(`SELECT id FROM runplane.runs FOR UPDATE NOWAIT`);
    seen.push(rows, locked.rowCount);
  };
  const launcher = launcherOf('watched', {
    find: () => look().then(() => ({ state: 'gone' })),
    list: () => look().then(() => []),
    remove: () => look().then(() => true),
  });
  await aLaunchedTurn(launcher);

  expect(await reconcile(launcher)).toEqual({ changed: 1, failed: 0 });

  expect(seen).toEqual([[], expect.any(Number), [], expect.any(Number)]);
});

test('only what runs on without a run is removed: not what is young, has ended, or has a run that is open or just over', async () => {
  const removed: string[] = [];
  const launcher = launcherOf('orphans', {
    find: () => Promise.resolve({ state: 'active' }),
    list: () => Promise.resolve(listed),
    remove: ({ jobName }) => Promise.resolve(removed.push(jobName) > 0),
  });
  const open = await aLaunchedTurn(launcher);
  const over = await aLaunchedTurn(launcher);
  await inTransaction(store.db, (tx) => cancelRun(tx, over.key));
  const job = (jobName: string, runId: string, more: Partial<ListedJob> = {}): ListedJob => ({
    tenantId,
    runId,
    runnerJobId: jobName,
    launcher: launcher.kind,
    jobName,
    state: 'active',
    ageMs: 120_000,
    version: 1,
    ...more,
  });
  const listed = [
    job('open', open.key.runId),
    job('just over', over.key.runId),
    job('young', 'run_none', { ageMs: 30_000 }),
    job('ended', 'run_none', { state: 'failed' }),
    job('orphan', 'run_none'),
    job("another tenant's", open.key.runId, { tenantId: 'globex' }),
  ];

  const report = await reconcile(launcher);

  expect(removed).toEqual(['orphan', "another tenant's"]);
  expect(report).toEqual({ changed: 2, failed: 0 });
});
