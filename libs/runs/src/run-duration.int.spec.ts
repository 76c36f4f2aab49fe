import { CreateRun } from '@runplane/contracts';
import { ensureTenant, inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getSession } from '@runplane/sessions';
import {
  cancelOverdueRunsOnce,
  claimRun,
  createRun,
  createRuns,
  failUnclaimedRunsOnce,
  getCommand,
  getRun,
  heartbeat,
  listCancelRequests,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from './index';
import { aClaimedTurn, aRun, aRunner, aTurn, endDuration, endLease, makeTenants, newRun, passDeadlines, story, TENANT } from './testing';

const store = useDatabase();
beforeAll(async () => {
  await makeTenants(store.db);
  await ensureTenant(store.db.sql, 'limited', { maxDurationMs: 60_000 });
});
const tenantId = TENANT;
const limited = newRun({ maxDurationMs: 3_600_000 });
const timedOut = { status: 'cancelled', failure: { kind: 'timeout', message: 'timeout' }, durationRemainingMs: null };
const nothing = { changed: 0, failed: 0 };

test('a run may be limited by its creator or its tenant; the limit is no part of what a repeat is compared by', async () => {
  const limitOf = async (tenant: string, run: CreateRun) =>
    (await inTransaction(store.db, (tx) => createRun(tx, { tenantId: tenant, run }))).run.maxDurationMs;
  expect([await limitOf(TENANT, newRun()), await limitOf(TENANT, limited), await limitOf('limited', newRun()), await limitOf('limited', limited)]).toEqual([
    null, 3_600_000, 60_000, 3_600_000,
  ]); // prettier-ignore
  const reserved = (maxDurationMs: number) =>
    inTransaction(store.db, (tx) => createRun(tx, { tenantId, run: newRun({ maxDurationMs }), runId: 'run_reserved' }));
  await reserved(1_000);
  expect(await reserved(2_000)).toMatchObject({ replayed: true, run: { maxDurationMs: 1_000 } });
  for (const wrong of [999, 604_800_001, 1.5]) expect(CreateRun.safeParse(newRun({ maxDurationMs: wrong })).success).toBe(false);
});

test('its time runs from the first claim, over all runners, and every runner is told what is left', async () => {
  const run = await aRun(store.db, { ...limited, onRunnerLost: 'requeue' });
  const key = { tenantId, runId: run.id };
  expect(run).toMatchObject({ startedAt: null, durationRemainingMs: null });

  const first = await claimRun(store.db, { ...key, runnerId: aRunner() });
  expect(first.durationRemainingMs).toBeGreaterThan(3_590_000);
  expect(first.run).toMatchObject({ startedAt: expect.any(String), maxDurationMs: 3_600_000 });
  const beat = await heartbeat(store.db, { ...key, epoch: first.epoch });
  expect(beat.durationRemainingMs).toBeGreaterThan(3_590_000);
  expect(beat.durationRemainingMs).toBeLessThanOrEqual(first.durationRemainingMs ?? 0);

  await store.db.pool.query(`UPDATE runplane.runs SET duration_deadline_at = duration_deadline_at - interval '30 minutes' WHERE id = $1`, [
    run.id,
  ]);
  await endLease(store.db, run.id);
  await sweepLostRunnersOnce(store.db);
  const second = await claimRun(store.db, { ...key, runnerId: aRunner() });
  expect(second.run.startedAt).toBe(first.run.startedAt);
  expect(second.durationRemainingMs).toBeLessThan(1_800_001);
});

test('at its end a run is asked to stop although its runner heartbeats, and ends as timeout at the latest after the grace', async () => {
  const { run, command, epoch } = await aClaimedTurn(store.db, 'over', { run: limited });
  const key = { tenantId, runId: run.id };
  expect(await cancelOverdueRunsOnce(store.db)).toEqual(nothing);
  await endDuration(store.db, run.id);
  expect(await heartbeat(store.db, { ...key, epoch })).toMatchObject({ cancel: null, durationRemainingMs: 0 });

  expect(await cancelOverdueRunsOnce(store.db)).toEqual({ changed: 1, failed: 0 });
  expect(await cancelOverdueRunsOnce(store.db)).toEqual(nothing);
  expect(await heartbeat(store.db, { ...key, epoch })).toMatchObject({ runStatus: 'cancelling', cancel: { reason: 'timeout' } });
  expect((await getRun(store.db, key)).cancel?.deadlineAt).not.toBeNull();
  await passDeadlines(store.db, run.id);
  await sweepCancelDeadlinesOnce(store.db);

  expect(await getRun(store.db, key)).toMatchObject(timedOut);
  expect(await getCommand(store.db, { tenantId, commandId: command.id })).toMatchObject({
    state: 'cancelled',
    failure: { kind: 'timeout' },
  });
  expect(await getSession(store.db, { tenantId, sessionId: 'over' })).toMatchObject({
    activeRunId: null,
    terminalStatus: 'cancelled',
    failureKind: 'timeout',
  });
  expect((await listCancelRequests(store.db, key)).requests).toMatchObject([
    { targetKind: 'run', requestedBy: null, reason: 'timeout', stage: 'terminalized' },
  ]);
  expect((await story(store.db, run.id)).slice(-6)).toEqual([
    'cancel-accepted', 'cancel-persisted', 'cancel-fenced', 'command-terminal', 'terminal_status', 'cancel-terminalized',
  ]); // prettier-ignore
});

test('a runner that answers by ending as cancelled ends it as timeout, also when it says so twice; its completion stands', async () => {
  for (const terminalStatus of ['cancelled', 'completed'] as const) {
    const { run, epoch } = await aClaimedTurn(store.db, undefined, { run: limited });
    await endDuration(store.db, run.id);
    await cancelOverdueRunsOnce(store.db);
    const finish = () => createRuns(store.db).finishRun({ tenantId, runId: run.id, epoch, outcome: { terminalStatus } });
    for (const ended of [await finish(), await finish()]) {
      expect(ended).toMatchObject(terminalStatus === 'cancelled' ? timedOut : { status: 'completed', failure: null });
    }
  }
});

test('without a live runner it ends at once, and as timeout whichever sweep comes first', async () => {
  const requeue = newRun({ maxDurationMs: 60_000, onRunnerLost: 'requeue' });
  for (const sweeps of [
    [cancelOverdueRunsOnce, sweepLostRunnersOnce],
    [sweepLostRunnersOnce, cancelOverdueRunsOnce],
  ]) {
    const { run } = await aClaimedTurn(store.db, undefined, { run: requeue });
    await endLease(store.db, run.id);
    await endDuration(store.db, run.id);
    for (const sweep of sweeps) await sweep(store.db);
    expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject(timedOut);
  }
  const { run } = await aClaimedTurn(store.db, undefined, { run: requeue });
  await endLease(store.db, run.id);
  await sweepLostRunnersOnce(store.db);
  await endDuration(store.db, run.id);
  expect(await cancelOverdueRunsOnce(store.db)).toEqual({ changed: 1, failed: 0 });
  expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject({ ...timedOut, attempts: 1 });
});

test('a run that was never claimed has its claim deadline, not a duration', async () => {
  const { run } = await aTurn(store.db, undefined, { run: newRun({ maxDurationMs: 1_000 }) });
  expect(run).toMatchObject({ startedAt: null, durationRemainingMs: null });
  await passDeadlines(store.db, run.id);
  expect(await cancelOverdueRunsOnce(store.db)).toEqual(nothing);
  await failUnclaimedRunsOnce(store.db);
  expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed' } });
});

test('a cancel that somebody asked for before the time was over stays theirs', async () => {
  const { run, epoch } = await aClaimedTurn(store.db, undefined, { run: limited });
  await createRuns(store.db).cancelRun({ tenantId, runId: run.id, reason: 'mine' });
  await endDuration(store.db, run.id);
  expect(await cancelOverdueRunsOnce(store.db)).toEqual(nothing);
  const outcome = { terminalStatus: 'cancelled' } as const;
  expect(await createRuns(store.db).finishRun({ tenantId, runId: run.id, epoch, outcome })).toMatchObject({
    failure: { kind: 'cancelled', message: 'mine' },
  });
});
