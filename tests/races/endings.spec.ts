import { inTransaction } from '@runplane/database';
import { waitUntilBlocked } from '@runplane/database/testing';
import {
  acknowledgeCancel,
  ackCommand,
  appendRunEvents,
  cancelCommand,
  cancelRun,
  createRuns,
  finishCommand,
  finishRun,
  getCommand,
  getRun,
  listCancelRequests,
  listRunEvents,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { aClaimedRun, aClaimedTurn, endLease, message, passDeadlines, story, TENANT } from '@runplane/runs/testing';
import { ending, hold, lockRow, meet, meetAborted, useRaces } from '../support/races';

const t = useRaces();
const completed = { terminalStatus: 'completed' } as const;
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const terminals = async (runId: string) => (await story(t.db, runId)).filter((what) => what === 'terminal_status').length;
const runs = () => createRuns(t.db);

describe('a finish and a cancel', () => {
  test('a finish that comes first stands; the cancel changes nothing', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [finished, cancel] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => runs().cancelRun(keyOf(run)),
    );
    expect(finished.status).toBe('completed');
    expect(cancel).toMatchObject({ value: { changed: false, run: { status: 'completed' }, request: null } });
    expect(await terminals(run.id)).toBe(1);
  });

  test('a requested cancel lets the runner say how it ended, and is answered by it', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [cancelled, finish] = await meet(
      t.db,
      (tx) => cancelRun(tx, keyOf(run)),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(cancelled.run.status).toBe('cancelling');
    expect(finish).toMatchObject({ value: { status: 'completed' } });
    expect(await listCancelRequests(t.db, keyOf(run))).toMatchObject({ requests: [{ stage: 'terminalized' }] });
  });

  test('an immediate cancel that comes first refuses the finish, and a finish as cancelled is its repeat', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const [, finish] = await meet(
      t.db,
      (tx) => cancelRun(tx, { ...keyOf(run), immediate: true }),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(finish).toMatchObject({ code: 'run_closed', data: { status: 'cancelled' } });
    expect(await runs().finishRun({ ...keyOf(run), epoch, outcome: { terminalStatus: 'cancelled' } })).toMatchObject({
      status: 'cancelled',
    });
    expect(await terminals(run.id)).toBe(1);
  });

  test('two cancels make one request', async () => {
    const { run } = await aClaimedTurn(t.db);
    const [, second] = await meet(
      t.db,
      (tx) => cancelRun(tx, keyOf(run)),
      () => runs().cancelRun(keyOf(run)),
    );
    expect(second).toMatchObject({ value: { changed: false, request: { stage: 'persisted' } } });
    expect((await listCancelRequests(t.db, keyOf(run))).requests).toHaveLength(1);
  });

  test('two finishes with one outcome are one, with two outcomes the first', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const finish = { ...keyOf(run), epoch, outcome: completed };
    const [, same] = await meet(
      t.db,
      (tx) => finishRun(tx, finish),
      () => runs().finishRun(finish),
    );
    expect(same).toMatchObject({ value: { status: 'completed' } });
    await expect(runs().finishRun({ ...finish, outcome: { terminalStatus: 'failed', failureKind: 'timeout' } })).rejects.toMatchObject({
      code: 'run_closed',
    });
    expect(await terminals(run.id)).toBe(1);
  });
});

describe('appends and the end of their run', () => {
  test('an append that comes first stands before terminal_status', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const [appended, finish] = await meet(
      t.db,
      (tx) => appendRunEvents(tx, { ...keyOf(run), epoch, events: [message('last words')] }),
      () => runs().finishRun({ ...keyOf(run), epoch, outcome: completed }),
    );
    expect(appended.lastSeq).toBe(3);
    expect(finish).toMatchObject({ value: { lastEventSeq: 4 } });
  });

  test('an append that comes second is refused and leaves a record, not its content', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const [, append] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('too late')] }),
    );
    expect(append).toMatchObject({ code: 'run_closed' });
    expect(await story(t.db, run.id)).toEqual(['run-created', 'run-claimed', 'terminal_status', 'late-write-rejected']);
  });

  test('a batch that is sent twice at once is stored once', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const batch = { ...keyOf(run), epoch, producerSequence: 1, events: [message('a'), message('b')] };
    const [first, second] = await meet(
      t.db,
      (tx) => appendRunEvents(tx, batch),
      () => appendRunEvents(t.db, batch),
    );
    expect(second).toEqual({ value: { ...first, replayed: true } });
    expect((await listRunEvents(t.db, { ...keyOf(run), afterSeq: 2 })).events).toHaveLength(2);
  });

  test('two batches under one number: the second is refused, whatever it holds', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const [, second] = await meet(
      t.db,
      (tx) => appendRunEvents(tx, { ...keyOf(run), epoch, producerSequence: 1, events: [message('a')] }),
      () => appendRunEvents(t.db, { ...keyOf(run), epoch, producerSequence: 1, events: [message('b')] }),
    );
    expect(second).toMatchObject({ code: 'producer_conflict' });
  });

  test('the repeat of a batch whose first try rolled back is the first', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const batch = { ...keyOf(run), epoch, producerSequence: 1, events: [message('a')] };
    const second = await meetAborted(
      t.db,
      (tx) => appendRunEvents(tx, batch),
      () => appendRunEvents(t.db, batch),
    );
    expect(second).toMatchObject({ value: { firstSeq: 3, replayed: false } });
  });

  test('a batch that overtakes the one before it is told which one is expected, and does not wait', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const first = await hold(t.db, (tx) => appendRunEvents(tx, { ...keyOf(run), epoch, producerSequence: 1, events: [message('a')] }));
    const second = await ending(appendRunEvents(t.db, { ...keyOf(run), epoch, producerSequence: 2, events: [message('b')] }));
    await first.commit();
    expect(second).toMatchObject({ code: 'producer_gap', data: { expected: 1 } });
  });
});

describe('sweeps and the end of their run', () => {
  test('a finish that comes first is not undone by the sweep of lost runners', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    await endLease(t.db, run.id);
    const [, swept] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => sweepLostRunnersOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect(await story(t.db, run.id)).not.toContain('claim-lost');
  });

  test('a sweep that comes first refuses the finish', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 's-lost');
    await endLease(t.db, run.id);
    const stop = await lockRow(t.url, 'sessions', `session_id = 's-lost'`);
    const sweep = sweepLostRunnersOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const finish = ending(runs().finishRun({ ...keyOf(run), epoch, outcome: completed }));
    await waitUntilBlocked(t.db, 2);
    await stop.release();
    expect(await sweep).toMatchObject({ changed: 1 });
    expect(await finish).toMatchObject({ code: 'run_closed', data: { runFailureKind: 'runner-lost' } });
    expect(await terminals(run.id)).toBe(1);
  });

  test('a finish that comes before an overdue cancel’s sweep stands', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    await runs().cancelRun(keyOf(run));
    await passDeadlines(t.db, run.id);
    const [, swept] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => sweepCancelDeadlinesOnce(t.db),
    );
    expect(swept).toEqual({ value: { changed: 0, failed: 0 } });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'completed' });
  });

  test('the cancel deadline and the lost runner, both due at once, end a run once', async () => {
    const { run } = await aClaimedTurn(t.db, 's-both');
    await runs().cancelRun(keyOf(run));
    await endLease(t.db, run.id);
    await passDeadlines(t.db, run.id);

    const stop = await lockRow(t.url, 'sessions', `session_id = 's-both'`);
    const deadlines = sweepCancelDeadlinesOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const lost = sweepLostRunnersOnce(t.db);
    await waitUntilBlocked(t.db, 2);
    await stop.release();

    expect([await deadlines, await lost]).toEqual([
      { changed: 1, failed: 0 },
      { changed: 0, failed: 0 },
    ]);
    const told = await story(t.db, run.id);
    for (const once of ['cancel-fenced', 'terminal_status', 'cancel-terminalized'])
      expect(told.filter((what) => what === once)).toHaveLength(1);
  });

  test('all sweeps together over twenty runs end each once', async () => {
    const due = await Promise.all(Array.from({ length: 20 }, () => aClaimedTurn(t.db)));
    for (const { run } of due) {
      await runs().cancelRun(keyOf(run));
      await endLease(t.db, run.id);
      await passDeadlines(t.db, run.id);
    }
    const sweeps = await Promise.all([
      sweepCancelDeadlinesOnce(t.db),
      sweepLostRunnersOnce(t.db),
      sweepCancelDeadlinesOnce(t.db),
      sweepLostRunnersOnce(t.db),
    ]);
    expect(sweeps.reduce((sum, { changed }) => sum + changed, 0)).toBe(20);
    for (const { run } of due) expect(await terminals(run.id)).toBe(1);
  });
});

describe('one command', () => {
  test('acknowledged first, then its cancel reaches the runner', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const [, cancel] = await meet(
      t.db,
      (tx) => ackCommand(tx, { ...keyOf(run), commandId: command.id, epoch }),
      () => runs().cancelCommand({ tenantId: TENANT, commandId: command.id }),
    );
    expect(cancel).toMatchObject({ value: { changed: true, command: { state: 'acknowledged' } } });
  });

  test('cancelled at once first: the acknowledgement finds it ended', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const [, ack] = await meet(
      t.db,
      (tx) => cancelCommand(tx, { tenantId: TENANT, commandId: command.id, immediate: true }),
      () => runs().ackCommand({ ...keyOf(run), commandId: command.id, epoch }),
    );
    expect(ack).toMatchObject({ value: { state: 'cancelled' } });
    expect(await story(t.db, run.id)).not.toContain('command-acknowledged');
  });

  test('finished first: its cancel changes nothing', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const [, cancel] = await meet(
      t.db,
      (tx) => finishCommand(tx, { ...keyOf(run), commandId: command.id, epoch, outcome: completed }),
      () => runs().cancelCommand({ tenantId: TENANT, commandId: command.id }),
    );
    expect(cancel).toMatchObject({ value: { changed: false, command: { state: 'completed' } } });
  });

  test('ends with its run when both end at once', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const [, finish] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
      () => runs().finishCommand({ ...keyOf(run), commandId: command.id, epoch, outcome: completed }),
    );
    expect(finish).toMatchObject({ value: { state: 'completed' } });
    expect((await story(t.db, run.id)).filter((what) => what === 'command-terminal')).toHaveLength(1);
  });

  test('whose cancel was asked twice, the second time at once, leaves no request open', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    await runs().cancelCommand({ tenantId: TENANT, commandId: command.id });
    await runs().cancelCommand({ tenantId: TENANT, commandId: command.id, immediate: true });
    expect(await getCommand(t.db, { tenantId: TENANT, commandId: command.id })).toMatchObject({ state: 'cancelled' });
    await runs().finishRun({ ...keyOf(run), epoch, outcome: completed });
    expect((await listCancelRequests(t.db, keyOf(run))).requests.map(({ stage }) => stage)).toEqual(['terminalized']);
  });

  test('a steer that is cancelled and then missed leaves no request open', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db);
    const steer = await runs().createCommand({
      ...keyOf(run),
      command: { type: 'steer', payload: { text: 'left' } },
      idempotencyKey: 'steer',
    });
    await runs().cancelCommand({ tenantId: TENANT, commandId: steer.command.id });
    await runs().finishCommand({ ...keyOf(run), commandId: command.id, epoch, outcome: completed });
    await runs().finishRun({ ...keyOf(run), epoch, outcome: completed });
    expect((await listCancelRequests(t.db, keyOf(run))).requests.map(({ stage }) => stage)).toEqual(['terminalized']);
  });
});

test('the runner’s word on a cancel that has just ended is refused', async () => {
  const { run, epoch } = await aClaimedTurn(t.db);
  await runs().cancelRun(keyOf(run));
  const [, word] = await meet(
    t.db,
    (tx) => cancelRun(tx, { ...keyOf(run), immediate: true }),
    () => inTransaction(t.db, (tx) => acknowledgeCancel(tx, { ...keyOf(run), epoch, stage: 'aborting' })),
  );
  expect(word).toMatchObject({ code: 'run_closed' });
  expect(await story(t.db, run.id)).not.toContain('cancel-aborting');
});
