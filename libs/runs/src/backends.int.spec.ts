import { BackendProfiles, type BackendRegistration, type JsonObject } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getBackend, listBackends, putBackend, registerBackends, updateBackendHealth } from './backends';
import { claimRun } from './claim-run';
import { dispatchOnce } from './dispatch-once';
import { failExhaustedIntentsOnce } from './dispatch-intents';
import { finishRun } from './finish-run';
import { LaunchFailed, type Launcher } from './launcher';
import { getDispatchIntent, getRun } from './read-runs';
import { failUnclaimedRunsOnce, sweepLostRunnersOnce } from './sweep';
import { aTurn, endLease, makeTenants, newRun, passDeadlines, story, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db));

describe('the registry of backends', () => {
  test('has the profiles of the operator’s file, over the defaults of their kind, and keeps what the file does not say', async () => {
    const file = BackendProfiles.parse({
      codex: { command: ['codex'], capabilities: { steers: false, models: ['a'] }, capacity: { maxRunners: 3, mode: 'pool' } },
      deepseek: { command: ['deepseek'] },
    });
    expect(await registerBackends(t.db, file)).toEqual({ changed: 2 });
    expect(await registerBackends(t.db, file)).toEqual({ changed: 0 });

    await putBackend(t.db, { profile: 'deepseek', backend: { capacity: { maxRunners: 1 } } });
    await updateBackendHealth(t.db, { profile: 'codex', health: { status: 'degraded', token: 'sk-secret' } });
    await Promise.all([registerBackends(t.db, file), inTransaction(t.db, (tx) => registerBackends(tx, file))]);

    const { backends } = await listBackends(t.db);
    expect(backends).toMatchObject([
      {
        profile: 'codex',
        capabilities: { kind: 'process', transport: 'stdio', steers: false, models: ['a'] },
        capacity: { maxRunners: 3, mode: 'pool' },
        health: { status: 'degraded', token: expect.not.stringContaining('sk-secret') as string },
      },
      {
        profile: 'deepseek',
        capabilities: { kind: 'process', steers: true },
        capacity: { maxRunners: 1 },
        health: { status: 'registered' },
      },
    ]);
    expect(await getBackend(t.db, { profile: 'codex' })).toEqual(backends[0]);
  });

  test('refuses input of the wrong shape and does not know what was not registered', async () => {
    for (const backend of [{ capacity: { maxRunners: -1 } }, { capacity: { maxRunners: 1.5 } }, { capabilities: [] }, { other: 1 }])
      await expect(putBackend(t.db, { profile: 'x', backend: backend as BackendRegistration })).rejects.toMatchObject({
        code: 'invalid_request',
      });
    await expect(putBackend(t.db, { profile: '', backend: {} })).rejects.toMatchObject({ code: 'invalid_identifier' });
    await expect(putBackend(t.db, { profile: 'x', backend: { health: { a: 'x'.repeat(70_000) } } })).rejects.toMatchObject({
      code: 'payload_too_large',
    });
    await expect(getBackend(t.db, { profile: 'x' })).rejects.toMatchObject({ code: 'backend_not_found' });
    await expect(updateBackendHealth(t.db, { profile: 'x', health: {} })).rejects.toMatchObject({ code: 'backend_not_found' });
  });
});

describe('a backend with a capacity', () => {
  const launched: string[] = [];
  const launcher: Launcher = {
    kind: 'test',
    launch: ({ runId }) => {
      launched.push(runId);
      return Promise.resolve({ outcome: 'created', jobName: `job-${runId}`, result: {} });
    },
  };
  const dispatch = (owner: string, by = launcher) => dispatchOnce(t.db, { launcher: by, owner });
  const backend = (profile: string, maxRunners: number) => putBackend(t.db, { profile, backend: { capacity: { maxRunners } } });
  const dispatched = (backendProfile: string, over: JsonObject = {}) =>
    aTurn(t.db, undefined, { run: newRun({ backendProfile, ...over }), dispatch: {} });
  const dueNow = () =>
    t.db.pool.query(`UPDATE runplane.dispatch_intents SET ready_at = runplane.app_now() - interval '1 s' WHERE state = 'retry'`);
  const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
  beforeEach(() => t.db.pool.query(`UPDATE runplane.dispatch_intents SET ready_at = 'infinity' WHERE state IN ('pending', 'retry')`));

  test('runs no more than it may, over all dispatchers; the others wait without losing an attempt, a deadline or their run', async () => {
    await backend('two', 2);
    const turns = await Promise.all(Array.from({ length: 4 }, () => dispatched('two')));
    const reports = await Promise.all(['d1', 'd2', 'd3'].map((owner) => dispatch(owner)));
    expect(reports.reduce((sum, { launched: n }) => sum + n, 0)).toBe(2);
    expect(reports.reduce((sum, { waiting }) => sum + waiting, 0)).toBe(2);

    const waiting = turns.filter(({ run }) => !launched.includes(run.id));
    for (const { run } of waiting) await passDeadlines(t.db, run.id);
    for (let pass = 0; pass < 10; pass += 1) {
      await dueNow();
      expect(await dispatch('d1')).toEqual({ launched: 0, retried: 0, failed: 0, waiting: 2, stale: 0 });
    }
    expect(await failUnclaimedRunsOnce(t.db)).toEqual({ changed: 0, failed: 0 });
    expect(await failExhaustedIntentsOnce(t.db)).toEqual({ changed: 0 });
    for (const { run, command } of waiting) {
      expect(await getDispatchIntent(t.db, { tenantId: TENANT, commandId: command.id })).toMatchObject({
        state: 'retry',
        attempts: 0,
        lastError: expect.stringContaining('capacity_reached') as string,
      });
      expect((await story(t.db, run.id)).filter((what) => what === 'runner-dispatch-waiting')).toHaveLength(1);
    }

    const [running] = turns.filter(({ run }) => launched.includes(run.id));
    if (running === undefined) throw new Error('nothing was launched');
    const { epoch } = await claimRun(t.db, { ...keyOf(running.run), runnerId: 'r1' });
    await dueNow();
    expect(await dispatch('d1')).toMatchObject({ launched: 0, waiting: 2 });
    await inTransaction(t.db, (tx) => finishRun(tx, { ...keyOf(running.run), epoch, outcome: { terminalStatus: 'completed' } }));
    await dueNow();
    expect(await dispatch('d1')).toMatchObject({ launched: 1, waiting: 1 });
  });

  test('gives a lost runner’s place to whoever comes, its own requeued run too', async () => {
    await backend('one', 1);
    const { run } = await dispatched('one', { onRunnerLost: 'requeue' });
    expect(await dispatch('d1')).toMatchObject({ launched: 1 });
    await claimRun(t.db, { ...keyOf(run), runnerId: 'lost' });
    await endLease(t.db, run.id);
    expect(await sweepLostRunnersOnce(t.db)).toMatchObject({ changed: 1 });
    expect(await dispatch('d1')).toMatchObject({ launched: 1, waiting: 0 });
    expect(launched.filter((id) => id === run.id)).toHaveLength(2);
  });

  test('with one place: two requeued runs do not wait for each other', async () => {
    await backend('pair', 2);
    const pair = [await dispatched('pair', { onRunnerLost: 'requeue' }), await dispatched('pair', { onRunnerLost: 'requeue' })];
    expect(await dispatch('d1')).toMatchObject({ launched: 2 });
    for (const { run } of pair) {
      await claimRun(t.db, { ...keyOf(run), runnerId: `lost-${run.id}` });
      await endLease(t.db, run.id);
    }
    expect(await sweepLostRunnersOnce(t.db)).toMatchObject({ changed: 2 });
    await backend('pair', 1);
    expect(await dispatch('d1')).toMatchObject({ launched: 1, waiting: 1 });
  });

  test('has the place back at once when a launch fails, and launches nothing with a capacity of none', async () => {
    await backend('fragile', 1);
    const failing: Launcher = { kind: 'test', launch: () => Promise.reject(new LaunchFailed('no', { permanent: true })) };
    const { run } = await dispatched('fragile');
    expect(await dispatch('d1', failing)).toMatchObject({ failed: 1 });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'failed' });
    await dispatched('fragile');
    expect(await dispatch('d1')).toMatchObject({ launched: 1 });

    await backend('drained', 0);
    await dispatched('drained');
    expect(await dispatch('d1')).toMatchObject({ launched: 0, waiting: 1 });
  });

  test('holds the place of a dispatcher that died until its lease ends, and no longer', async () => {
    await backend('crash', 1);
    await t.db.pool.query(
      `INSERT INTO runplane.reservations (kind, key, slot, owner, epoch, expires_at) VALUES ('runner-create', '[null,"crash"]', 1, 'dead', 1, runplane.app_now() + interval '30 s')`,
    );
    await dispatched('crash');
    expect(await dispatch('d1')).toMatchObject({ launched: 0, waiting: 1 });
    await t.db.pool.query(`UPDATE runplane.reservations SET expires_at = runplane.app_now() WHERE owner = 'dead'`);
    await dueNow();
    expect(await dispatch('d1')).toMatchObject({ launched: 1 });
  });

  test('that is not in the registry has no limit', async () => {
    await Promise.all([dispatched('unknown'), dispatched('unknown')]);
    expect(await dispatch('d1')).toMatchObject({ launched: 2 });
  });
});
