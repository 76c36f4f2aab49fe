import { waitUntilBlocked } from '@runplane/database/testing';
import {
  admitSteer,
  admitTurn,
  cancelRun,
  claimRun,
  createRuns,
  finishCommand,
  finishRun,
  getCommand,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { aClaimedTurn, aTurn, endLease, newRun, newTurn, story, TENANT } from '@runplane/runs/testing';
import { ending, hold, lockRow, meet, meetAborted, useRaces } from '../support/races';

const t = useRaces();
const completed = { terminalStatus: 'completed' } as const;
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const runs = () => createRuns(t.db);
const steer = (sessionId: string | null, idempotencyKey = 'steer', text = 'left') => ({
  tenantId: TENANT,
  sessionId: sessionId ?? '',
  idempotencyKey,
  steer: { payload: { text } },
});
const interrupting = (sessionId: string | null, idempotencyKey: string) => ({
  tenantId: TENANT,
  sessionId: sessionId ?? '',
  idempotencyKey,
  turn: { ...newTurn('now'), busyPolicy: 'interrupt' as const },
});
const missed = { state: 'failed', failure: { kind: 'steer-missed' } };
const commandOf = (commandId: string) => getCommand(t.db, { tenantId: TENANT, commandId });

describe('a steer and the end of its turn', () => {
  test('a steer that comes second is refused', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const [, late] = await meet(
      t.db,
      (tx) => finishCommand(tx, { ...keyOf(run), commandId: command.id, epoch, outcome: completed }),
      () => runs().admitSteer(steer(run.sessionId)),
    );
    // The pair that was looked at has changed: the look is repeated, and finds the session free.
    expect(late).toMatchObject({ code: 'no_receivable_turn', data: { why: 'no-turn' } });
    expect(await story(t.db, run.id)).not.toContain('steer-accepted');
  });

  test('a steer that comes first is missed, and its repeat says so', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [admitted, finish] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId)),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(finish).toMatchObject({ value: { status: 'completed' } });
    expect(await commandOf(admitted.command.id)).toMatchObject(missed);
    expect(await runs().admitSteer(steer(run.sessionId))).toMatchObject({ replayed: true, command: missed });
  });

  test('a steer behind a cancel is refused; before it, it is taken, and missed at the end', async () => {
    const second = await aClaimedTurn(t.db);
    const [, late] = await meet(
      t.db,
      (tx) => cancelRun(tx, keyOf(second.run)),
      () => runs().admitSteer(steer(second.run.sessionId)),
    );
    expect(late).toMatchObject({ code: 'no_receivable_turn', data: { why: 'cancelling' } });

    const first = await aClaimedTurn(t.db);
    const [admitted, cancel] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(first.run.sessionId)),
      () => runs().cancelRun({ ...keyOf(first.run), immediate: true }),
    );
    expect(cancel).toMatchObject({ value: { run: { status: 'cancelled' } } });
    expect(await commandOf(admitted.command.id)).toMatchObject(missed);
  });

  test('a steer that waits for its own consumption to be told stands as consumed', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const { command } = await runs().admitSteer(steer(run.sessionId));
    const [, finish] = await meet(
      t.db,
      (tx) => finishCommand(tx, { ...keyOf(run), commandId: command.id, epoch, outcome: completed }),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(finish).toMatchObject({ value: { status: 'completed' } });
    expect(await commandOf(command.id)).toMatchObject({ state: 'completed' });
  });
});

describe('a steer and its runner', () => {
  test('a steer behind the first claim finds the holder; before it, it is in the claim’s answer', async () => {
    const second = await aTurn(t.db);
    const [, steered] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(second.run), runnerId: 'r1' }),
      () => runs().admitSteer(steer(second.run.sessionId)),
    );
    expect(steered).toMatchObject({ value: { holder: 'r1', run: { status: 'claimed' } } });

    const first = await aTurn(t.db);
    const [admitted, claim] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(first.run.sessionId)),
      () => claimRun(t.db, { ...keyOf(first.run), runnerId: 'r1' }),
    );
    expect(admitted.holder).toBeNull();
    expect(claim).toMatchObject({ value: { commands: [{ id: first.command.id }, { id: admitted.command.id }] } });
  });

  test('a steer that waits for the sweep of a lost runner is judged by what the sweep has left', async () => {
    const requeued = await aClaimedTurn(t.db, undefined, { run: newRun({ onRunnerLost: 'requeue' }) });
    await endLease(t.db, requeued.run.id);
    const row = await lockRow(t.url, 'dispatch_intents', `run_id = '${requeued.run.id}'`);
    const sweep = sweepLostRunnersOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const waiting = ending(runs().admitSteer(steer(requeued.run.sessionId)));
    await waitUntilBlocked(t.db, 2);
    await row.release();
    await sweep;
    expect(await waiting).toMatchObject({ value: { holder: null, run: { status: 'pending' }, command: { state: 'pending' } } });
  });

  test('a steer that meets a takeover is refused, or belongs to the new turn where it looked late enough', async () => {
    const old = await aClaimedTurn(t.db);
    await endLease(t.db, old.run.id);
    const [taken, steered] = await meet(
      t.db,
      (tx) => admitTurn(tx, { tenantId: TENANT, sessionId: old.run.sessionId ?? '', idempotencyKey: 'new', turn: newTurn() }),
      () => runs().admitSteer(steer(old.run.sessionId)),
    );
    expect(steered).toMatchObject({ value: { target: { id: taken.command.id }, run: { id: taken.run.id } } });
  });
});

describe('two steers at once', () => {
  test('with one key are one; with other words the second is refused; with two keys they are two', async () => {
    const { run } = await aClaimedTurn(t.db);
    const [first, twin] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId)),
      () => runs().admitSteer(steer(run.sessionId)),
    );
    expect(twin).toMatchObject({ value: { replayed: true, command: { id: first.command.id } } });
    const [, other] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId, 'b')),
      () => runs().admitSteer(steer(run.sessionId, 'b', 'right')),
    );
    expect(other).toMatchObject({ code: 'idempotency_conflict' });
    const [third, fourth] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId, 'c')),
      () => runs().admitSteer(steer(run.sessionId, 'd')),
    );
    expect(fourth).toMatchObject({ value: { replayed: false, command: { seq: third.command.seq + 1 } } });
  });

  test('of which the first rolls back: the second is the first', async () => {
    const { run } = await aClaimedTurn(t.db);
    const second = await meetAborted(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId)),
      () => runs().admitSteer(steer(run.sessionId)),
    );
    expect(second).toMatchObject({ value: { replayed: false } });
  });

  test('one in the session and one in the run, with one key, are one', async () => {
    const { run } = await aClaimedTurn(t.db);
    const [first, twin] = await meet(
      t.db,
      (tx) => admitSteer(tx, steer(run.sessionId)),
      () => runs().createCommand({ ...keyOf(run), idempotencyKey: 'steer', command: { type: 'steer', payload: { text: 'left' } } }),
    );
    expect(twin).toMatchObject({ value: { replayed: true, command: { id: first.command.id, targetCommandId: first.target.id } } });
  });
});

describe('a turn that interrupts', () => {
  test('is admitted when the end of the old run comes first', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [, admitted] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => runs().admitTurn(interrupting(run.sessionId, 'new')),
    );
    expect(admitted).toMatchObject({ value: { disposition: 'created' } });
    expect(await story(t.db, run.id)).not.toContain('cancel-accepted');
  });

  test('that comes first lets the runner say how it ended, and comes after it', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [first, finish] = await meet(
      t.db,
      (tx) => admitTurn(tx, interrupting(run.sessionId, 'new')),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(first.disposition).toBe('interrupting');
    expect(finish).toMatchObject({ value: { status: 'completed' } });
    expect(await runs().admitTurn(interrupting(run.sessionId, 'new'))).toMatchObject({ disposition: 'created' });
  });

  test('beside another: one cancel; one is admitted, the other interrupts it in turn', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [first, second] = await meet(
      t.db,
      (tx) => admitTurn(tx, interrupting(run.sessionId, 'a')),
      () => runs().admitTurn(interrupting(run.sessionId, 'b')),
    );
    expect(first).toMatchObject({ disposition: 'interrupting' });
    expect(second).toMatchObject({
      value: { disposition: 'interrupting', request: { id: (first as { request: { id: string } }).request.id } },
    });
    await runs().finishRun({ ...keyOf(run), epoch, outcome: { terminalStatus: 'cancelled' } });

    const held = await hold(t.db, (tx) => admitTurn(tx, interrupting(run.sessionId, 'a')));
    const waiting = ending(runs().admitTurn({ ...interrupting(run.sessionId, 'b'), turn: newTurn('now') }));
    await waitUntilBlocked(t.db, 1);
    const admitted = await held.commit();
    if (admitted.disposition === 'interrupting') throw new Error('the session was free');
    expect(await waiting).toMatchObject({ code: 'session_busy', data: { runId: admitted.run.id } });
    await claimRun(t.db, { ...keyOf(admitted.run), runnerId: 'r1' });
    expect(await runs().admitTurn(interrupting(run.sessionId, 'b'))).toMatchObject({
      disposition: 'interrupting',
      runId: admitted.run.id,
    });
  });

  test('twice with one key, of a run that nobody has claimed: one turn', async () => {
    const { run } = await aTurn(t.db);
    const [first, twin] = await meet(
      t.db,
      (tx) => admitTurn(tx, interrupting(run.sessionId, 'new')),
      () => runs().admitTurn(interrupting(run.sessionId, 'new')),
    );
    if (first.disposition === 'interrupting') throw new Error('nobody had claimed the run');
    expect(twin).toMatchObject({ value: { disposition: 'replayed', run: { id: first.run.id } } });
  });
});
