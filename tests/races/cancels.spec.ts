import {
  appendRunEvents,
  cancelOverdueRunsOnce,
  cancelRun,
  cancelSession,
  claimRun,
  createRuns,
  finishRun,
  getRun,
  heartbeat,
  listCancelRequests,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { waitUntilBlocked } from '@runplane/database/testing';
import { aClaimedTurn, aTurn, endDuration, endLease, message, newRun, newTurn, story, TENANT } from '@runplane/runs/testing';
import { ending, lockRow, meet, useRaces } from '../support/races';

// Cancels of sessions and ends of durations against what runners and users do at the same moment; those of runs and commands: endings.spec.ts.

const t = useRaces();
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const completed = { terminalStatus: 'completed' } as const;
const runs = () => createRuns(t.db);
const limited = { run: newRun({ maxDurationMs: 3_600_000, onRunnerLost: 'requeue' as const }) };
const stop = (sessionId: string, immediate = false) => runs().cancelSession({ tenantId: TENANT, sessionId, immediate });

async function anOverdueTurn(sessionId?: string) {
  const turn = await aClaimedTurn(t.db, sessionId, limited);
  await endDuration(t.db, turn.run.id);
  return turn;
}

describe('a cancel of a session', () => {
  test('that meets the admission of the next turn stops that turn, not the one before', async () => {
    const old = await aClaimedTurn(t.db, 's-next');
    await endLease(t.db, old.run.id);
    const hold = await lockRow(t.url, 'sessions', `session_id = 's-next'`);
    const admitted = runs().admitTurn({ tenantId: TENANT, sessionId: 's-next', turn: newTurn('next'), idempotencyKey: 'next' });
    await waitUntilBlocked(t.db, 1); // it holds the old run
    const cancelled = ending(stop('s-next'));
    await waitUntilBlocked(t.db, 2); // it has seen the old pair
    await hold.release();

    const { run } = await admitted;
    expect(await cancelled).toMatchObject({
      value: { changed: true, run: { id: run.id, status: 'cancelled' }, request: { runId: run.id } },
    });
    expect((await listCancelRequests(t.db, keyOf(old.run))).requests).toEqual([]);
  });

  test('that comes first leaves the session to the next turn', async () => {
    await aTurn(t.db, 's-freed');
    const next = () => runs().admitTurn({ tenantId: TENANT, sessionId: 's-freed', turn: newTurn('next'), idempotencyKey: 'next' });
    const [cancelled, admitted] = await meet(t.db, (tx) => cancelSession(tx, { tenantId: TENANT, sessionId: 's-freed' }), next);
    expect(cancelled).toMatchObject({ changed: true, run: { status: 'cancelled' } });
    expect(admitted).toMatchObject({ value: { disposition: 'created' } });
  });

  test('that meets the finish of its turn finds nothing left to stop', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 's-finished');
    const [, cancelled] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => stop('s-finished'),
    );
    expect(cancelled).toEqual({ value: { sessionId: 's-finished', run: null, request: null, changed: false } });
  });

  test('that meets a claim becomes a request to the runner', async () => {
    const { run } = await aTurn(t.db, 's-claimed');
    const [, cancelled] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }),
      () => stop('s-claimed'),
    );
    expect(cancelled).toMatchObject({
      value: { run: { status: 'cancelling', claimedBy: 'r1' }, request: { targetKind: 'session', stage: 'persisted' } },
    });
  });

  test('at once refuses the append that waits behind it; one that comes first stands before the end', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 's-append');
    const append = { ...keyOf(run), epoch, events: [message('words')] };
    const [, cancelled] = await meet(
      t.db,
      (tx) => appendRunEvents(tx, append),
      () => stop('s-append', true),
    );
    expect(cancelled).toMatchObject({ value: { run: { status: 'cancelled' } } });
    expect(await story(t.db, run.id)).toEqual(expect.arrayContaining(['assistant_message', 'cancel-fenced', 'terminal_status']));

    const second = await aClaimedTurn(t.db, 's-append');
    const [, refused] = await meet(
      t.db,
      (tx) => cancelSession(tx, { tenantId: TENANT, sessionId: 's-append', immediate: true }),
      () => appendRunEvents(t.db, { ...append, ...keyOf(second.run), epoch: second.epoch }),
    );
    expect(refused).toMatchObject({ code: 'run_closed', data: { status: 'cancelled' } });
    expect(await story(t.db, second.run.id)).not.toContain('assistant_message');
  });
});

describe('the end of a duration', () => {
  test('is nothing to a run that finishes first', async () => {
    const { run, epoch } = await anOverdueTurn();
    const [, swept] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => cancelOverdueRunsOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'completed' });
  });

  test('that comes first lets the finish say how it ended', async () => {
    const { run, epoch } = await anOverdueTurn('s-first');
    const hold = await lockRow(t.url, 'run_leases', `run_id = '${run.id}'`);
    const sweep = cancelOverdueRunsOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const finish = ending(runs().finishRun({ ...keyOf(run), epoch, outcome: { terminalStatus: 'cancelled' } }));
    await waitUntilBlocked(t.db, 2);
    await hold.release();

    expect(await sweep).toEqual({ changed: 1, failed: 0 });
    expect(await finish).toMatchObject({ value: { status: 'cancelled', failure: { kind: 'timeout' } } });
  });

  test('is not put off by a heartbeat, and leaves a live runner its grace', async () => {
    const { run, epoch } = await anOverdueTurn();
    const [, swept] = await meet(
      t.db,
      (tx) => heartbeat(tx, { ...keyOf(run), epoch, leaseMs: 600_000 }),
      () => cancelOverdueRunsOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 1, failed: 0 } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'cancelling', cancel: { reason: 'timeout' } });
    await runs().cancelRun({ ...keyOf(run), immediate: true });
  });

  test('of a run that waits for its next runner, and that runner’s claim: whoever comes first decides whether it is asked or ended', async () => {
    const requeued = async (sessionId?: string) => {
      const { run } = await aClaimedTurn(t.db, sessionId, limited);
      await endLease(t.db, run.id);
      await sweepLostRunnersOnce(t.db);
      await endDuration(t.db, run.id);
      return run;
    };
    const claimed = await requeued();
    const claim = (run: { id: string }) => claimRun(t.db, { ...keyOf(run), runnerId: 'r2' });
    const [, swept] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(claimed), runnerId: 'r2' }),
      () => cancelOverdueRunsOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 1, failed: 0 } });
    expect(await getRun(t.db, keyOf(claimed))).toMatchObject({ status: 'cancelling', claimedBy: 'r2', durationRemainingMs: 0 });
    await runs().cancelRun({ ...keyOf(claimed), immediate: true });

    const ended = await requeued('s-ended');
    const hold = await lockRow(t.url, 'sessions', `session_id = 's-ended'`);
    const sweep = cancelOverdueRunsOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const late = ending(claim(ended));
    await waitUntilBlocked(t.db, 2);
    await hold.release();
    expect(await sweep).toEqual({ changed: 1, failed: 0 });
    expect(await late).toMatchObject({ code: 'run_closed', data: { status: 'cancelled', runFailureKind: 'timeout' } });
  });

  test('and the loss of its runner, both due at once, end a run once and as timeout', async () => {
    const { run } = await anOverdueTurn('s-both');
    await endLease(t.db, run.id);
    const hold = await lockRow(t.url, 'sessions', `session_id = 's-both'`);
    const lost = sweepLostRunnersOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const over = cancelOverdueRunsOnce(t.db);
    await waitUntilBlocked(t.db, 2);
    await hold.release();

    expect([await lost, await over]).toEqual([
      { changed: 1, failed: 0 },
      { changed: 0, failed: 0 },
    ]);
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'cancelled', failure: { kind: 'timeout' } });
    for (const once of ['cancel-accepted', 'terminal_status'])
      expect((await story(t.db, run.id)).filter((what) => what === once)).toHaveLength(1);
  });

  test('behind a cancel that was just asked for changes nothing', async () => {
    const { run } = await anOverdueTurn();
    const [, swept] = await meet(
      t.db,
      (tx) => cancelRun(tx, { ...keyOf(run), reason: 'mine' }),
      () => cancelOverdueRunsOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect((await listCancelRequests(t.db, keyOf(run))).requests).toMatchObject([{ reason: 'mine' }]);
  });
});
