import type { Tx } from '@runplane/database';
import { waitUntilBlocked } from '@runplane/database/testing';
import {
  appendRunEvents,
  claimRun,
  confirmRunnerSlot,
  createRuns,
  finishRun,
  getRun,
  reserveRunnerSlot,
  saveRunnerJob,
  withRunnerRetentionFence,
} from '@runplane/runs';
import { aClaimedRun, aClaimedTurn, aTurn, endLease, message, TENANT } from '@runplane/runs/testing';
import { ending, hold, meet, meetAborted, useRaces } from '../support/races';

const t = useRaces();
const runs = () => createRuns(t.db);
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const endHolds = (key: string) =>
  t.db.pool.query(`UPDATE runplane.reservations SET expires_at = runplane.app_now() WHERE key::json ->> 1 = $1`, [key]);
const reserve = (key: string, owner: string) => (tx: Tx) => reserveRunnerSlot(tx, { key, owner });

describe('two who want the last place', () => {
  test('get it once; the second is told so after the first has committed, and gets it when the first rolls back', async () => {
    const [, second] = await meet(t.db, reserve('last', 'a'), () => runs().reserveRunnerSlot({ key: 'last', owner: 'b' }));
    expect(second).toMatchObject({ code: 'capacity_reached', data: { reserved: 1 } });
    const alone = await meetAborted(t.db, reserve('undone', 'a'), () => runs().reserveRunnerSlot({ key: 'undone', owner: 'b' }));
    expect(alone).toMatchObject({ value: { slot: 1, owner: 'b' } });
  });

  test('are not both let in when a creation turns into a live run between their looks', async () => {
    const wanted = { tenantId: TENANT, key: 'turning', limit: 2, backendProfile: 'turning' };
    const { key, slot, owner, epoch } = await runs().reserveRunnerSlot({ ...wanted, owner: 'x' });
    const first = await hold(t.db, (tx) => reserveRunnerSlot(tx, { ...wanted, owner: 'a' }));
    await aClaimedRun(t.db, { backendProfile: 'turning' }); // the runner of x
    const confirmed = runs().confirmRunnerSlot({ tenantId: TENANT, key, slot, owner, epoch });
    const second = ending(runs().reserveRunnerSlot({ ...wanted, owner: 'b' }));
    await waitUntilBlocked(t.db, 2);
    await first.commit();
    await confirmed;
    expect(await second).toMatchObject({ code: 'capacity_reached', data: { live: 1 } });
  });

  test('one behind the end of the other’s lease: the late confirmation is refused, an early one leaves the place free', async () => {
    const late = await runs().reserveRunnerSlot({ key: 'late', owner: 'a' });
    await endHolds('late');
    const { key, slot, owner, epoch } = late;
    const [, confirmed] = await meet(t.db, reserve('late', 'b'), () => runs().confirmRunnerSlot({ key, slot, owner, epoch }));
    expect(confirmed).toMatchObject({ code: 'reservation_lost' });

    const early = await runs().reserveRunnerSlot({ key: 'early', owner: 'a' });
    const confirm = (tx: Tx) => confirmRunnerSlot(tx, { key: 'early', slot: early.slot, owner: 'a', epoch: early.epoch });
    const [, next] = await meet(t.db, confirm, () => runs().reserveRunnerSlot({ key: 'early', owner: 'b' }));
    expect(next).toMatchObject({ value: { slot: 1, owner: 'b', epoch: early.epoch + 2 } });
  });
});

test('twins of one job are one record, also when the first is not committed yet', async () => {
  const { run, command } = await aTurn(t.db);
  const twin = { ...keyOf(run), idempotencyKey: 'k', job: { commandId: command.id, jobName: 'j' } };
  const [first, second] = await meet(
    t.db,
    (tx) => saveRunnerJob(tx, twin),
    () => runs().saveRunnerJob(twin),
  );
  expect(second).toEqual({ value: { job: first.job, replayed: true } });
});

describe('a retention fence', () => {
  const fence = (run: { id: string }, commandId: string) =>
    withRunnerRetentionFence(t.db, { ...keyOf(run), commandId, terminalizeStalePending: true, reason: 'old' }, () =>
      Promise.resolve('removed'),
    );

  test('that meets a claim leaves the run to its runner', async () => {
    const { run, command } = await aTurn(t.db);
    const [, fenced] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'quick' }),
      () => fence(run, command.id),
    );
    expect(fenced).toMatchObject({ code: 'run_claimed', data: { claimedBy: 'quick' } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed' });
  });

  test('that meets a late append or finish of a runner whose lease has ended comes behind it', async () => {
    const appended = await aClaimedTurn(t.db);
    await endLease(t.db, appended.run.id);
    const append = (tx: Tx) => appendRunEvents(tx, { ...keyOf(appended.run), epoch: appended.epoch, events: [message('late')] });
    const [, behindAppend] = await meet(t.db, append, () => fence(appended.run, appended.command.id));
    expect(behindAppend).toEqual({ value: 'removed' });
    expect(await getRun(t.db, keyOf(appended.run))).toMatchObject({ status: 'failed' });

    const finished = await aClaimedTurn(t.db);
    await endLease(t.db, finished.run.id);
    const finish = (tx: Tx) => finishRun(tx, { ...keyOf(finished.run), epoch: finished.epoch, outcome: { terminalStatus: 'completed' } });
    const [, behindFinish] = await meet(t.db, finish, () => fence(finished.run, finished.command.id));
    expect(behindFinish).toEqual({ value: 'removed' });
    expect(await getRun(t.db, keyOf(finished.run))).toMatchObject({ status: 'completed' });
  });

  test('that another works under is refused, and changes nothing of the run', async () => {
    const { run, command } = await aTurn(t.db);
    const before = await getRun(t.db, keyOf(run));
    await withRunnerRetentionFence(t.db, { ...keyOf(run), commandId: command.id, reason: 'look' }, async () => {
      await expect(fence(run, command.id)).rejects.toMatchObject({ code: 'capacity_reached' });
      expect(await getRun(t.db, keyOf(run))).toEqual(before);
    });
  });
});
