import { inTransaction } from '@runplane/database';
import {
  admitTurn,
  appendRunEvents,
  claimRun,
  createCommand,
  createRun,
  createRuns,
  finishCommand,
  finishRun,
  getRun,
} from '@runplane/runs';
import { aClaimedTurn, aTurn, endLease, message, newRun, newTurn, story, TENANT } from '@runplane/runs/testing';
import { getSession } from '@runplane/sessions';
import { hold, meet, meetAborted, useRaces } from '../support/races';

const t = useRaces();
const completed = { terminalStatus: 'completed' } as const;
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const runs = () => createRuns(t.db);
const turn = (sessionId: string, idempotencyKey: string, text = 'hello') => ({
  tenantId: TENANT,
  sessionId,
  idempotencyKey,
  turn: newTurn(text),
});

/** A session whose last turn has ended. */
async function freeSession(sessionId: string): Promise<void> {
  const { run, epoch } = await aClaimedTurn(t.db, sessionId);
  await runs().finishRun({ ...keyOf(run), epoch, outcome: completed });
}

describe.each([
  ['a new session', async () => undefined],
  ['a free session', freeSession],
])('two turns at once in %s', (kind, prepare) => {
  const session = (name: string) => `${kind.replaceAll(' ', '-')}-${name}`;

  test('with one key are one turn', async () => {
    const id = session('one');
    await prepare(id);
    const [first, second] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn(id, 'k')),
      () => runs().admitTurn(turn(id, 'k')),
    );
    expect(first.disposition).toBe('created');
    expect(second).toMatchObject({ value: { disposition: 'replayed', run: { id: first.run.id }, command: { id: first.command.id } } });
  });

  test('with one key and other words: the second is refused', async () => {
    const id = session('words');
    await prepare(id);
    const [, second] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn(id, 'k')),
      () => runs().admitTurn(turn(id, 'k', 'other words')),
    );
    expect(second).toMatchObject({ code: 'idempotency_conflict' });
  });

  test('with two keys: the second finds the session busy', async () => {
    const id = session('two');
    await prepare(id);
    const [first, second] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn(id, 'k1')),
      () => runs().admitTurn(turn(id, 'k2')),
    );
    expect(second).toMatchObject({ code: 'session_busy', data: { runId: first.run.id, commandId: first.command.id } });
  });

  test('of which the first rolls back: the second is admitted', async () => {
    const id = session('abort');
    await prepare(id);
    const second = await meetAborted(
      t.db,
      (tx) => admitTurn(tx, turn(id, 'k1')),
      () => runs().admitTurn(turn(id, 'k2')),
    );
    expect(second).toMatchObject({ value: { disposition: 'created' } });
  });
});

describe('a turn whose runner is dead', () => {
  test('is taken over once, by the first of two new turns', async () => {
    const old = await aClaimedTurn(t.db, 's-dead');
    await endLease(t.db, old.run.id);
    const [first, second] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn('s-dead', 'k1')),
      () => runs().admitTurn(turn('s-dead', 'k2')),
    );
    expect(second).toMatchObject({ code: 'session_busy', data: { runId: first.run.id } });
    expect((await story(t.db, old.run.id)).filter((what) => what === 'terminal_status')).toHaveLength(1);
  });

  test('is not taken over when its runner’s last append comes first, nor does it deadlock: the append is kept', async () => {
    const old = await aClaimedTurn(t.db, 's-append');
    await endLease(t.db, old.run.id);
    const [, taken] = await meet(
      t.db,
      (tx) => appendRunEvents(tx, { ...keyOf(old.run), epoch: old.epoch, events: [message('almost')] }),
      () => runs().admitTurn(turn('s-append', 'k2')),
    );
    expect(taken).toMatchObject({ value: { disposition: 'created' } });
    expect((await story(t.db, old.run.id)).slice(-4)).toEqual([
      'assistant_message',
      'session-turn-admission-stale-terminalized',
      'command-terminal',
      'terminal_status',
    ]);
  });

  test('refuses the append that comes behind the takeover', async () => {
    const old = await aClaimedTurn(t.db, 's-behind');
    await endLease(t.db, old.run.id);
    const [taken, append] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn('s-behind', 'k2')),
      () => appendRunEvents(t.db, { ...keyOf(old.run), epoch: old.epoch, events: [message('late')] }),
    );
    expect(append).toMatchObject({ code: 'run_closed' });
    expect(await getSession(t.db, { tenantId: TENANT, sessionId: 's-behind' })).toMatchObject({ activeRunId: taken.run.id });
  });

  test('is not taken over when its runner claims it anew at that moment', async () => {
    const old = await aClaimedTurn(t.db, 's-anew');
    await endLease(t.db, old.run.id);
    const [, admitted] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(old.run), runnerId: 'r2' }),
      () => runs().admitTurn(turn('s-anew', 'k2')),
    );
    expect(admitted).toMatchObject({ code: 'session_busy', data: { holder: 'r2' } });
  });

  test('that ends by itself at that moment leaves the session to the new turn', async () => {
    const old = await aClaimedTurn(t.db, 's-ends');
    const [, admitted] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(old.run), epoch: old.epoch, outcome: completed }),
      () => runs().admitTurn(turn('s-ends', 'k2')),
    );
    expect(admitted).toMatchObject({ value: { disposition: 'created' } });
    expect(await getRun(t.db, keyOf(old.run))).toMatchObject({ status: 'completed' });
  });
});

test('an append of a run and the admission to its busy session do not wait for each other in a circle', async () => {
  const { run, epoch } = await aClaimedTurn(t.db, 's-circle');
  const [admitted, append] = await meet(
    t.db,
    (tx) => admitTurn(tx, turn('s-circle', 'k2')).catch((error: unknown) => (error as { code: string }).code),
    () => appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('on')] }),
  );
  expect(admitted).toBe('session_busy');
  expect(append).toMatchObject({ value: { replayed: false } });
});

describe('a second turn of an open run and a turn with a run of its own', () => {
  const second = (run: { id: string }, idempotencyKey: string) => ({
    ...keyOf(run),
    idempotencyKey,
    command: { type: 'turn', payload: { text: 'more' } },
  });

  /** A claimed run whose turn has ended, in a session that is free. */
  async function openRun(sessionId: string) {
    const old = await aClaimedTurn(t.db, sessionId);
    await runs().finishCommand({ ...keyOf(old.run), commandId: old.command.id, epoch: old.epoch, outcome: completed });
    return old.run;
  }

  test('the command that comes first makes the session busy', async () => {
    const run = await openRun('s-command');
    const [{ command }, admitted] = await meet(
      t.db,
      (tx) => createCommand(tx, second(run, 'k1')),
      () => runs().admitTurn(turn('s-command', 'k2')),
    );
    expect(admitted).toMatchObject({ code: 'session_busy', data: { commandId: command.id } });
  });

  test('the admission that comes first makes the session busy', async () => {
    const run = await openRun('s-admission');
    const [admitted, command] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn('s-admission', 'k1')),
      () => runs().createCommand(second(run, 'k2')),
    );
    expect(command).toMatchObject({ code: 'session_busy', data: { runId: admitted.run.id } });
  });

  test('with one key are a conflict of content, whoever comes first', async () => {
    const run = await openRun('s-key');
    const [, command] = await meet(
      t.db,
      (tx) => admitTurn(tx, turn('s-key', 'k')),
      () => runs().createCommand(second(run, 'k')),
    );
    expect(command).toMatchObject({ code: 'idempotency_conflict' });
  });

  test('two calls with one key make one command', async () => {
    const run = await openRun('s-twins');
    const [first, twin] = await meet(
      t.db,
      (tx) => createCommand(tx, second(run, 'k')),
      () => runs().createCommand(second(run, 'k')),
    );
    expect(twin).toMatchObject({ value: { replayed: true, command: { id: first.command.id } } });
  });
});

test('a steer that meets the end of its turn is refused', async () => {
  const { run, command, epoch } = await aClaimedTurn(t.db);
  const [, steer] = await meet(
    t.db,
    (tx) => finishCommand(tx, { ...keyOf(run), commandId: command.id, epoch, outcome: completed }),
    () => runs().createCommand({ ...keyOf(run), idempotencyKey: 's', command: { type: 'steer', payload: { text: 'left' } } }),
  );
  expect(steer).toMatchObject({ code: 'no_receivable_turn' });
});

test('a command that meets the end of its run is refused, and its repeat under a known key is not', async () => {
  const { run, epoch } = await aClaimedTurn(t.db);
  const note = (idempotencyKey: string) => ({ ...keyOf(run), idempotencyKey, command: { type: 'note', payload: {} } });
  const known = await runs().createCommand(note('known'));
  const [, late] = await meet(
    t.db,
    (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: completed }),
    () => runs().createCommand(note('late')),
  );
  expect(late).toMatchObject({ code: 'run_closed' });
  expect(await runs().createCommand(note('known'))).toMatchObject({
    replayed: true,
    command: { id: known.command.id, state: 'completed' },
  });
});

describe('two creations of one run', () => {
  const reserved = (runId: string, over = {}) => ({ tenantId: TENANT, runId, run: newRun(over) });

  test('under a reserved id are one', async () => {
    const [, twin] = await meet(
      t.db,
      (tx) => createRun(tx, reserved('run_twin')),
      () => runs().createRun(reserved('run_twin')),
    );
    expect(twin).toMatchObject({ value: { replayed: true, run: { id: 'run_twin' } } });
    expect(await story(t.db, 'run_twin')).toEqual(['run-created']);
  });

  test('under a reserved id with other content: the second is refused', async () => {
    const [, twin] = await meet(
      t.db,
      (tx) => createRun(tx, reserved('run_other')),
      () => runs().createRun(reserved('run_other', { providerId: 'x' })),
    );
    expect(twin).toMatchObject({ code: 'idempotency_conflict' });
  });

  test('of which the first rolls back: the second makes it', async () => {
    const twin = await meetAborted(
      t.db,
      (tx) => createRun(tx, reserved('run_again')),
      () => runs().createRun(reserved('run_again')),
    );
    expect(twin).toMatchObject({ value: { replayed: false } });
  });

  test('that name one new session make it once', async () => {
    const run = { ...newRun(), sessionRef: { sessionId: 's-made' } };
    const [, twin] = await meet(
      t.db,
      (tx) => createRun(tx, { tenantId: TENANT, run }),
      () => runs().createRun({ tenantId: TENANT, run }),
    );
    expect(twin).toMatchObject({ value: { replayed: false, run: { sessionId: 's-made' } } });
  });

  test('that name one new session for two projects: the second is refused', async () => {
    const [, twin] = await meet(
      t.db,
      (tx) => createRun(tx, { tenantId: TENANT, run: { ...newRun(), sessionRef: { sessionId: 's-border' } } }),
      () => runs().createRun({ tenantId: TENANT, run: { ...newRun({ projectId: 'p2' }), sessionRef: { sessionId: 's-border' } } }),
    );
    expect(twin).toMatchObject({ code: 'session_boundary' });
  });
});

test('a turn is admitted while another session’s turn holds its locks', async () => {
  const held = await hold(t.db, (tx) => admitTurn(tx, turn('s-left', 'k')));
  expect(await inTransaction(t.db, (tx) => admitTurn(tx, turn('s-right', 'k')))).toMatchObject({ disposition: 'created' });
  await held.commit();
  await aTurn(t.db);
});
