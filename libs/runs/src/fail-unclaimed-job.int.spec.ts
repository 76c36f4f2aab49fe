import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { BackendProfiles } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getSession } from '@runplane/sessions';
import {
  claimRun,
  createProcessLauncher,
  dispatchOnce,
  failUnclaimedJob,
  getDispatchIntent,
  getRun,
  waitForRunResult,
  type Launcher,
} from './index';
import { aRunner, aTurn, makeTenants, newRun, passDeadlines, story, TENANT } from './testing';

const store = useDatabase();
beforeAll(() => makeTenants(store.db));
const tenantId = TENANT;

/** Launches nothing; says of each job when it ended. */
const launcher: Launcher = { kind: 'test', launch: () => Promise.resolve({ outcome: 'created', jobName: 'job', result: {} }) };
const dispatch = (by = launcher) => dispatchOnce(store.db, { launcher: by, owner: 'd' });

async function aLaunchedTurn(sessionId: string, run = newRun()) {
  const turn = await aTurn(store.db, sessionId, { run });
  await dispatch();
  const lose = async (jobId = turn.intent?.runnerJobId ?? '') =>
    inTransaction(store.db, (tx) => failUnclaimedJob(tx, { tenantId, runId: turn.run.id, jobId, reason: 'OOMKilled' }));
  return { ...turn, key: { tenantId, runId: turn.run.id }, lose };
}
const intentOf = (command: { id: string }) => getDispatchIntent(store.db, { tenantId, commandId: command.id });

test('a run whose launched job is gone fails at once, not at its claim deadline, and frees its session', async () => {
  const { key, command, lose } = await aLaunchedTurn('gone');

  expect(await lose()).toEqual({ outcome: 'failed' });
  expect(await lose()).toEqual({ outcome: 'kept' });

  expect(await getRun(store.db, key)).toMatchObject({
    status: 'failed',
    attempts: 1,
    failure: { kind: 'runner-lost', message: expect.stringContaining('OOMKilled') },
  });
  expect((await story(store.db, key.runId)).slice(-4)).toEqual([
    'runner-dispatch-completed',
    'runner-dispatch-lost',
    'command-terminal',
    'terminal_status',
  ]);
  expect(await intentOf(command)).toMatchObject({ state: 'dispatched' });
  expect(await getSession(store.db, { tenantId, sessionId: 'gone' })).toMatchObject({ executionState: 'terminal', activeRunId: null });
});

test('with onRunnerLost requeue it is launched again, as often as the run may be attempted', async () => {
  const { key, command, lose } = await aLaunchedTurn('again', newRun({ onRunnerLost: 'requeue', maxAttempts: 2 }));
  await passDeadlines(store.db, key.runId);

  expect(await lose()).toEqual({ outcome: 'requeued' });
  expect(await lose()).toEqual({ outcome: 'kept' }); // that job is not the run's any more
  const next = await intentOf(command);
  expect(next).toMatchObject({ state: 'pending', generation: 2 });
  expect(await getRun(store.db, key)).toMatchObject({ status: 'pending', attempts: 1 });

  await dispatch();
  expect(await lose(next?.runnerJobId)).toEqual({ outcome: 'failed' });
  expect(await story(store.db, key.runId)).toEqual(expect.arrayContaining(['runner-dispatch-lost', 'run-requeued', 'terminal_status']));
  expect(await getRun(store.db, key)).toMatchObject({ status: 'failed', attempts: 2 });
});

test('a run that was claimed is left to its lease, another tenant’s is not found', async () => {
  const { key, intent, lose } = await aLaunchedTurn('claimed');
  await claimRun(store.db, { ...key, runnerId: aRunner() });

  expect(await lose()).toEqual({ outcome: 'kept' });
  const jobId = intent?.runnerJobId ?? '';
  expect(await inTransaction(store.db, (tx) => failUnclaimedJob(tx, { ...key, tenantId: 'other', jobId, reason: 'x' }))).toEqual({
    outcome: 'kept',
  });

  expect(await getRun(store.db, key)).toMatchObject({ status: 'claimed' });
  expect(await story(store.db, key.runId)).not.toContain('runner-dispatch-lost');
});

test('a runner program that ends before it claims ends its run at once', async () => {
  const dir = await mkdtemp(path.join(os.tmpdir(), 'lost-launch-'));
  const { run } = await aTurn(store.db, 'real');
  const real = createProcessLauncher({
    runnerCommand: [process.execPath, '-e', 'process.stdin.resume().on("end", () => process.exit(7))'],
    stateDir: dir,
    apiUrl: 'http://127.0.0.1:1',
    backends: BackendProfiles.parse({ demo: { command: ['none'] } }),
    workspaceRoot: dir,
    issueToken: () => Promise.resolve('token'),
  });

  await store.db.hub.start();
  await dispatch(real);
  const result = await waitForRunResult(store.db, { tenantId, runId: run.id, waitMs: 10_000 });

  expect(result).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost', message: expect.stringContaining('exit code 7') } });
  await rm(dir, { recursive: true });
});
