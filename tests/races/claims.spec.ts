import {
  appendRunEvents,
  cancelRun,
  claimRun,
  createRuns,
  failUnclaimedRunsOnce,
  getRun,
  heartbeat,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import {
  aClaimedRun,
  aClaimedTurn,
  aRun,
  aRunner,
  aTurn,
  endLease,
  message,
  newRun,
  passDeadlines,
  story,
  TENANT,
} from '@runplane/runs/testing';
import { ending, hold, meet, meetAborted, meetStopped, openDbAhead, useRaces } from '../support/races';

const t = useRaces();
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const rival =
  (run: { id: string }, runnerId = 'rival') =>
  () =>
    claimRun(t.db, { ...keyOf(run), runnerId });

describe('two runners that claim one run', () => {
  test('get it once: the second sees a lease that is newer than its snapshot', async () => {
    const run = await aRun(t.db);

    const [first, second] = await meet(t.db, (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }), rival(run));

    expect(first.epoch).toBe(1);
    expect(second).toMatchObject({ code: 'run_claimed', data: { claimedBy: 'r1' } });
    expect(await story(t.db, run.id)).toEqual(['run-created', 'run-claimed']);
  });

  test('leave it to the second when the first rolls back', async () => {
    const run = await aRun(t.db);
    const second = await meetAborted(t.db, (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }), rival(run));
    expect(second).toMatchObject({ value: { epoch: 1, run: { claimedBy: 'rival', attempts: 1 } } });
  });

  test('take an ended lease over once', async () => {
    const { run } = await aClaimedRun(t.db);
    await endLease(t.db, run.id);

    const [first, second] = await meet(t.db, (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r2' }), rival(run));

    expect(first.epoch).toBe(2);
    expect(second).toMatchObject({ code: 'run_claimed', data: { claimedBy: 'r2' } });
    expect(await story(t.db, run.id)).toEqual(['run-created', 'run-claimed', 'claim-lost', 'run-claimed']);
  });

  test('are one when they have one name: the second call keeps the first one’s epoch', async () => {
    const run = await aRun(t.db);
    const [, second] = await meet(t.db, (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }), rival(run, 'r1'));
    expect(second).toMatchObject({ value: { epoch: 1, run: { attempts: 1 } } });
  });

  test('do not take over an ended lease when the run’s attempts are used up: the sweep ends it', async () => {
    const { run } = await aClaimedRun(t.db, { maxAttempts: 1 });
    await endLease(t.db, run.id);
    expect(await ending(rival(run)())).toMatchObject({ code: 'run_claimed' });
    await sweepLostRunnersOnce(t.db);
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'failed', attempts: 1 });
  });

  test('in a crowd: exactly one of twenty gets it', async () => {
    const run = await aRun(t.db);
    const endings = await Promise.all(Array.from({ length: 20 }, () => ending(claimRun(t.db, { ...keyOf(run), runnerId: aRunner() }))));
    expect(endings.filter((each) => 'value' in each)).toHaveLength(1);
    expect(new Set(endings.map((each) => ('code' in each ? each.code : 'granted')))).toEqual(new Set(['granted', 'run_claimed']));
  });
});

describe('a claim and a cancel', () => {
  test('a cancel that comes first leaves nothing to claim', async () => {
    const { run } = await aTurn(t.db);
    const [cancelled, claim] = await meet(t.db, (tx) => cancelRun(tx, keyOf(run)), rival(run));
    expect(cancelled.run.status).toBe('cancelled');
    expect(claim).toMatchObject({ code: 'run_closed' });
  });

  test('a claim that comes first turns the cancel into a request to its runner', async () => {
    const { run } = await aTurn(t.db);
    const [claim, cancelled] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }),
      () => createRuns(t.db).cancelRun(keyOf(run)),
    );
    expect(cancelled).toMatchObject({
      value: { changed: true, run: { status: 'cancelling', claimedBy: 'r1' }, request: { stage: 'persisted' } },
    });
    expect(await heartbeat(t.db, { ...keyOf(run), epoch: claim.epoch })).toMatchObject({ runStatus: 'cancelling' });
  });
});

describe('the sweep of lost runners', () => {
  test('leaves a run alone that a new runner has taken over meanwhile', async () => {
    const { run } = await aClaimedTurn(t.db);
    await endLease(t.db, run.id);
    const [claim, swept] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r2' }),
      () => sweepLostRunnersOnce(t.db),
    );
    expect(claim.epoch).toBe(2);
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed', claimedBy: 'r2' });
  });

  test('that comes first leaves nothing to claim', async () => {
    const { run } = await aClaimedTurn(t.db, 's-swept');
    await endLease(t.db, run.id);

    const [sweep, claim] = await meetStopped(t, 'sessions', `session_id = 's-swept'`, () => sweepLostRunnersOnce(t.db), rival(run));

    expect(sweep).toMatchObject({ changed: 1 });
    expect(claim).toMatchObject({ code: 'run_closed' });
  });

  test('leaves a run alone whose lease a heartbeat prolongs at that moment', async () => {
    const { run, epoch } = await aClaimedRun(t.db); // 30 s from now
    const later = await openDbAhead(t.url, 45_000);

    await meet(
      t.db,
      (tx) => heartbeat(tx, { ...keyOf(run), epoch, leaseMs: 120_000 }),
      () => sweepLostRunnersOnce(later), // for it every lease of this file has ended
    );
    await later.close();

    expect(await story(t.db, run.id)).toEqual(['run-created', 'run-claimed']);
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed', claimEpoch: epoch });
  });

  test('that comes first tells the heartbeat to stop', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 's-beaten');
    await endLease(t.db, run.id);

    const [sweep, beat] = await meetStopped(
      t,
      'sessions',
      `session_id = 's-beaten'`,
      () => sweepLostRunnersOnce(t.db),
      () => heartbeat(t.db, { ...keyOf(run), epoch }),
    );

    expect(sweep).toMatchObject({ changed: 1 });
    expect(beat).toMatchObject({ value: { stop: true, runStatus: 'failed' } });
  });

  test('fences the old runner when it gives the run back: an append behind it is refused', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db, undefined, { run: newRun({ onRunnerLost: 'requeue' }) });
    await endLease(t.db, run.id);

    const [sweep, append] = await meetStopped(
      t,
      'commands',
      `id = '${command.id}'`,
      () => sweepLostRunnersOnce(t.db),
      () => appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('late')] }),
    );

    expect(sweep).toMatchObject({ changed: 1 });
    expect(append).toMatchObject({ code: 'lease_lost' });
    expect(await claimRun(t.db, { ...keyOf(run), runnerId: 'r2' })).toMatchObject({ epoch: epoch + 2 });
  });

  test('run twice at once ends each run once', async () => {
    const { run } = await aClaimedTurn(t.db, 's-twice');
    await endLease(t.db, run.id);

    const [first, second] = await meetStopped(
      t,
      'sessions',
      `session_id = 's-twice'`,
      () => sweepLostRunnersOnce(t.db),
      () => sweepLostRunnersOnce(t.db),
    );

    expect([first, second]).toEqual([{ changed: 1, failed: 0 }, { value: { changed: 0, failed: 0 } }]);
    expect((await story(t.db, run.id)).filter((what) => what === 'terminal_status' || what === 'claim-lost')).toEqual([
      'claim-lost',
      'terminal_status',
    ]);
  });
});

describe('the claim deadline', () => {
  test('is kept by a claim that comes first', async () => {
    const { run } = await aTurn(t.db);
    await passDeadlines(t.db, run.id);
    const [, swept] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }),
      () => failUnclaimedRunsOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed' });
  });

  test('that comes first refuses the claim', async () => {
    const { run } = await aTurn(t.db, 's-overdue');
    await passDeadlines(t.db, run.id);

    const [sweep, claim] = await meetStopped(t, 'sessions', `session_id = 's-overdue'`, () => failUnclaimedRunsOnce(t.db), rival(run));

    expect(sweep).toMatchObject({ changed: 1 });
    expect(claim).toMatchObject({ code: 'run_closed' });
  });
});

test('a heartbeat does not wait for appends that hold the run', async () => {
  const { run, epoch } = await aClaimedRun(t.db);
  const append = await hold(t.db, (tx) => appendRunEvents(tx, { ...keyOf(run), epoch, events: [message('slow')] }));
  expect(await heartbeat(t.db, { ...keyOf(run), epoch })).toMatchObject({ runStatus: 'claimed' });
  await append.commit();
});
