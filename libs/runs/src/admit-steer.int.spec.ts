import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { endSubmission, getSession, getSubmission } from '@runplane/sessions';
import {
  claimDispatchIntents,
  claimRun,
  createRuns,
  getCommand,
  getRun,
  heartbeat,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
  terminalizeDispatchIntent,
  waitForCommands,
} from './index';
import { aClaimedTurn, aTurn, endLease, makeTenants, newRun, newTurn, passDeadlines, story, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;
const runs = () => createRuns(t.db);
let names = 0;
const newSession = () => `s${(names += 1)}`;
const keyOf = ({ run, epoch }: { run: { id: string }; epoch: number }) => ({ tenantId, runId: run.id, epoch });

const steer = (sessionId: string, { text = 'left', key = 'steer' } = {}) =>
  runs().admitSteer({ tenantId, sessionId, steer: { payload: { text } }, idempotencyKey: key });
const steers = async (runId: string) => (await story(t.db, runId)).filter((what) => what.startsWith('steer-'));

describe('a steer', () => {
  test('reaches the runner of the open turn, and its way is told', async () => {
    const sessionId = newSession();
    const turn = await aClaimedTurn(t.db, sessionId);
    const before = await getSession(t.db, { tenantId, sessionId });
    const admitted = await steer(sessionId);
    const commandId = admitted.command.id;
    expect(admitted).toMatchObject({
      disposition: 'steered',
      replayed: false,
      run: { id: turn.run.id },
      command: { type: 'steer', state: 'pending', targetCommandId: turn.command.id, payload: { text: 'left' } },
      target: { id: turn.command.id, type: 'turn' },
      holder: (await getRun(t.db, keyOf(turn))).claimedBy,
    });
    expect(admitted.leaseRemainingMs).toBeGreaterThan(20_000);
    expect(await getSession(t.db, { tenantId, sessionId })).toMatchObject({
      activeRunId: turn.run.id,
      activeCommandId: turn.command.id,
      lastCommandId: commandId,
      executionState: 'running',
      version: before.version + 1,
    });

    const beat = await heartbeat(t.db, { ...keyOf(turn), commandsAfterSeq: turn.command.seq });
    expect(beat.commands).toMatchObject([{ id: commandId, payload: { text: 'left' } }]);
    expect(await runs().ackCommand({ ...keyOf(turn), commandId })).toMatchObject({ state: 'acknowledged' });
    await runs().ackCommand({ ...keyOf(turn), commandId });
    const consumed = { ...keyOf(turn), commandId, outcome: completed };
    expect(await runs().finishCommand(consumed)).toMatchObject({ state: 'completed' });
    await runs().finishCommand(consumed);
    await runs().finishRun({ ...keyOf(turn), outcome: completed });

    expect((await story(t.db, turn.run.id)).slice(3)).toEqual([
      'run-claimed',
      'user_message',
      'command-created',
      'steer-accepted',
      'command-acknowledged',
      'steer-delivered',
      'steer-consumed',
      'command-terminal',
      'command-terminal',
      'terminal_status',
    ]);
    expect(await steer(sessionId)).toMatchObject({
      replayed: true,
      holder: null,
      leaseRemainingMs: null,
      run: { status: 'completed' },
      command: { id: commandId, state: 'completed' },
      target: { state: 'completed' },
    });
    await expect(steer(sessionId, { text: 'right' })).rejects.toMatchObject({ code: 'idempotency_conflict' });
    await expect(steer(sessionId, { key: turn.command.idempotencyKey as string })).rejects.toMatchObject({ code: 'idempotency_conflict' });
  });

  test('is a change of its session, for whoever follows its changes', async () => {
    const sessionId = newSession();
    await aClaimedTurn(t.db, sessionId);
    const place = async () => {
      const { rows } = await t.db.pool.query<{ tx: string }>('SELECT changed_tx::text AS tx FROM runplane.sessions WHERE session_id = $1', [
        sessionId,
      ]);
      return BigInt(rows[0]?.tx ?? 0);
    };
    const before = await place();
    await steer(sessionId);
    expect(await place()).toBeGreaterThan(before);
  });

  test('does not take the key of another command of its run', async () => {
    const sessionId = newSession();
    const { run } = await aClaimedTurn(t.db, sessionId);
    await runs().createCommand({ tenantId, runId: run.id, command: { type: 'note', payload: { text: 'left' } }, idempotencyKey: 'steer' });
    const refused = { code: 'idempotency_conflict' };

    await expect(steer(sessionId)).rejects.toMatchObject(refused);
    const turn = { ...newTurn('left'), busyPolicy: 'steer' as const };
    await expect(runs().admitTurn({ tenantId, sessionId, idempotencyKey: 'steer', requestedBy: 'k', turn })).rejects.toMatchObject(refused);
    expect(await steers(run.id)).toEqual([]);
  });

  test('is taken for a turn whose runner is about to come, and given to it with the claim', async () => {
    const sessionId = newSession();
    const { run } = await aTurn(t.db, sessionId);
    const { command, holder } = await steer(sessionId);
    expect(holder).toBeNull();
    const claim = await claimRun(t.db, { tenantId, runId: run.id, runnerId: 'r1' });
    expect(claim.commands.map(({ id }) => id)).toContain(command.id);
  });

  test('is refused where nothing is receivable, and nothing is written', async () => {
    const written = async () => (await t.db.pool.query('SELECT count(*)::int AS n FROM runplane.outbox_events')).rows;
    const refused = async (sessionId: string, why: string) => {
      const before = await written();
      const refusal = { code: 'no_receivable_turn', data: { why } };
      await expect(steer(sessionId)).rejects.toMatchObject(refusal);
      if (why === 'cancelling') {
        const turn = { ...newTurn(), busyPolicy: 'steer' as const };
        await expect(runs().admitTurn({ tenantId, sessionId, idempotencyKey: 'k', turn })).rejects.toMatchObject(refusal);
      }
      expect(await written()).toEqual(before);
    };
    const ended = await aClaimedTurn(t.db, newSession());
    await runs().finishRun({ ...keyOf(ended), outcome: completed });
    await refused(ended.run.sessionId as string, 'no-turn');
    const lost = await aClaimedTurn(t.db, newSession());
    await endLease(t.db, lost.run.id);
    await refused(lost.run.sessionId as string, 'runner-lost');
    const cancelling = await aClaimedTurn(t.db, newSession());
    await runs().cancelRun({ tenantId, runId: cancelling.run.id });
    await refused(cancelling.run.sessionId as string, 'cancelling');
    const turnCancelling = await aClaimedTurn(t.db, newSession());
    await runs().cancelCommand({ tenantId, commandId: turnCancelling.command.id });
    await refused(turnCancelling.run.sessionId as string, 'cancelling');
    const undispatched = await aTurn(t.db, newSession(), { dispatch: null });
    await expect(steer(undispatched.run.sessionId as string)).rejects.toMatchObject({ data: { why: 'no-runner-coming' } });
    const viaRun = { tenantId, runId: undispatched.run.id, idempotencyKey: 'k', command: { type: 'steer', payload: {} } };
    await expect(runs().createCommand(viaRun)).rejects.toMatchObject({ code: 'no_receivable_turn', data: { why: 'no-runner-coming' } });

    await expect(steer('nowhere')).rejects.toMatchObject({ code: 'session_not_found' });
    const foreign = { tenantId: 'other', sessionId: undispatched.run.sessionId as string, steer: { payload: {} }, idempotencyKey: 'k' };
    await expect(runs().admitSteer(foreign)).rejects.toMatchObject({ code: 'session_not_found' });
  });

  test.each<[string, (turn: Awaited<ReturnType<typeof aClaimedTurn>>) => Promise<unknown>]>([
    ['the turn is finished', (turn) => runs().finishCommand({ ...keyOf(turn), commandId: turn.command.id, outcome: completed })],
    ['the run is finished', (turn) => runs().finishRun({ ...keyOf(turn), outcome: completed })],
    ['the run is cancelled', ({ run }) => runs().cancelRun({ tenantId, runId: run.id, immediate: true })],
    ['the turn is cancelled', ({ command }) => runs().cancelCommand({ tenantId, commandId: command.id, immediate: true })],
    [
      'the cancel of its run is overdue',
      async ({ run }) => {
        await runs().cancelRun({ tenantId, runId: run.id });
        await passDeadlines(t.db, run.id);
        await sweepCancelDeadlinesOnce(t.db);
      },
    ],
    [
      'its runner is lost',
      async ({ run }) => {
        await endLease(t.db, run.id);
        await sweepLostRunnersOnce(t.db);
      },
    ],
    [
      'a new turn takes over',
      async ({ run }) => {
        await endLease(t.db, run.id);
        await aTurn(t.db, run.sessionId as string);
      },
    ],
  ])('that is still open when %s is missed, never lost in silence', async (_, end) => {
    const turn = await aClaimedTurn(t.db, newSession());
    const sessionId = turn.run.sessionId as string;
    const pending = await steer(sessionId, { key: 'pending' });
    const delivered = await steer(sessionId, { key: 'delivered' });
    await runs().ackCommand({ ...keyOf(turn), commandId: delivered.command.id });

    await end(turn);

    for (const { command } of [pending, delivered]) {
      expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({
        state: 'failed',
        failure: { kind: 'steer-missed' },
      });
    }
    expect(await steers(turn.run.id)).toEqual(['steer-accepted', 'steer-accepted', 'steer-delivered', 'steer-missed', 'steer-missed']);
    expect(await steer(sessionId, { key: 'pending' })).toMatchObject({ replayed: true, command: { failure: { kind: 'steer-missed' } } });
  });

  test('is missed when its turn’s dispatch fails for good', async () => {
    const { run } = await aTurn(t.db, newSession());
    const { command } = await steer(run.sessionId as string);
    const claim = (await claimDispatchIntents(t.db, { owner: 'd', limit: 100 })).find(({ runId }) => runId === run.id);
    if (claim === undefined) throw new Error('the intent was not due');
    const failure = { failureKind: 'infra-failed', message: 'x', attempts: 8 };
    await inTransaction(t.db, (tx) => terminalizeDispatchIntent(tx, { ...claim, intentId: claim.id, owner: 'd' }, failure));
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({ failure: { kind: 'steer-missed' } });
  });

  test('stays with a run that is given to another runner, and is delivered again', async () => {
    const turn = await aClaimedTurn(t.db, newSession(), { run: newRun({ onRunnerLost: 'requeue' }) });
    const { command } = await steer(turn.run.sessionId as string);
    await runs().ackCommand({ ...keyOf(turn), commandId: command.id });
    await endLease(t.db, turn.run.id);
    await sweepLostRunnersOnce(t.db);
    expect(await steer(turn.run.sessionId as string)).toMatchObject({ command: { id: command.id, state: 'pending' }, holder: null });

    const claim = await claimRun(t.db, { tenantId, runId: turn.run.id, runnerId: 'r2' });
    expect(claim.commands.map(({ id }) => id)).toEqual([turn.command.id, command.id]);
    await runs().ackCommand({ tenantId, runId: turn.run.id, epoch: claim.epoch, commandId: command.id });
    await runs().finishCommand({ tenantId, runId: turn.run.id, epoch: claim.epoch, commandId: command.id, outcome: completed });
    expect(await steers(turn.run.id)).toEqual(['steer-accepted', 'steer-delivered', 'steer-delivered', 'steer-consumed']);
  });

  test('that is cancelled ends alone', async () => {
    const turn = await aClaimedTurn(t.db, newSession());
    const { command } = await steer(turn.run.sessionId as string);
    await runs().cancelCommand({ tenantId, commandId: command.id, immediate: true });
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({ state: 'cancelled' });
    expect(await getCommand(t.db, { tenantId, commandId: turn.command.id })).toMatchObject({ state: 'pending' });
    expect(await steers(turn.run.id)).toEqual(['steer-accepted']);
  });
});

describe('a runner that waits for commands', () => {
  test('hears of a steer and of a cancel at once, and of nothing else', async () => {
    const turn = await aClaimedTurn(t.db, newSession());
    const wait = (afterSeq: number, waitMs = 20_000) => waitForCommands(t.db, { tenantId, runId: turn.run.id, afterSeq, waitMs });
    expect(await wait(turn.command.seq, 1)).toEqual({ commands: [] });
    const heard = wait(turn.command.seq);
    const { command } = await steer(turn.run.sessionId as string);
    expect(await heard).toMatchObject({ commands: [{ id: command.id }] });
    const over = wait(command.seq);
    await runs().cancelRun({ tenantId, runId: turn.run.id });
    expect(await over).toEqual({ commands: [] });
    expect(await wait(command.seq)).toEqual({ commands: [] });
  });
});

describe('a turn in a busy session', () => {
  const turnOf = (sessionId: string, key = 'new', text = 'and now') => ({
    tenantId,
    sessionId,
    idempotencyKey: key,
    requestedBy: 'key_1',
    turn: newTurn(text),
  });
  const withPolicy = <Policy extends 'steer' | 'interrupt'>(busyPolicy: Policy, call: ReturnType<typeof turnOf>) =>
    runs().admitTurn({ ...call, turn: { ...call.turn, busyPolicy } });

  test('becomes a steer of the open turn where it asks for that, and stays it; a free session admits it', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    const call = turnOf(sessionId);
    const steered = await withPolicy('steer', call);
    expect(steered).toMatchObject({ disposition: 'steered', target: { id: open.command.id }, command: { payload: { text: 'and now' } } });
    await expect(withPolicy('steer', turnOf(sessionId, 'new', 'other words'))).rejects.toMatchObject({ code: 'idempotency_conflict' });
    const elsewhere = turnOf(sessionId, 'k2');
    await expect(
      withPolicy('steer', { ...elsewhere, turn: { ...elsewhere.turn, run: newRun({ projectId: 'p2' }) } }),
    ).rejects.toMatchObject({
      code: 'session_boundary',
    });
    await runs().finishRun({ ...keyOf(open), outcome: completed });
    expect(await withPolicy('steer', call)).toMatchObject({
      disposition: 'steered',
      replayed: true,
      command: { id: steered.command.id, state: 'failed' },
    });
    await expect(runs().admitTurn(call)).rejects.toMatchObject({ code: 'idempotency_conflict' });

    const free = await withPolicy('steer', turnOf(sessionId, 'k3'));
    expect(free.disposition).toBe('created');
    expect(await withPolicy('steer', turnOf(sessionId, 'k3'))).toMatchObject({ disposition: 'replayed', run: { id: free.run.id } });
    expect(await runs().admitTurn(turnOf(sessionId, 'k3'))).toMatchObject({ disposition: 'replayed' });
  });

  test('interrupts a claimed one: two phases, the same call until the old run has ended, nothing stored in between', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    const first = await withPolicy('interrupt', turnOf(sessionId));
    expect(first).toMatchObject({
      disposition: 'interrupting',
      sessionId,
      runId: open.run.id,
      commandId: open.command.id,
      request: { reason: 'interrupt', requestedBy: 'key_1', targetKind: 'run', stage: 'persisted' },
    });
    const again = await withPolicy('interrupt', turnOf(sessionId));
    const other = await withPolicy('interrupt', turnOf(sessionId, 'other'));
    expect([again, other]).toMatchObject([
      { disposition: 'interrupting', request: { id: (first as { request: { id: string } }).request.id } },
      { disposition: 'interrupting', runId: open.run.id },
    ]);
    const { rows } = await t.db.pool.query('SELECT id FROM runplane.commands WHERE session_id = $1', [sessionId]);
    expect(rows).toEqual([{ id: open.command.id }]);

    await runs().finishRun({ ...keyOf(open), outcome: { terminalStatus: 'cancelled' } });
    const admitted = await withPolicy('interrupt', turnOf(sessionId));
    expect(admitted).toMatchObject({ disposition: 'created' });
    expect(await withPolicy('interrupt', turnOf(sessionId))).toMatchObject({ disposition: 'replayed' });
    expect(await getSession(t.db, { tenantId, sessionId })).toMatchObject({ activeRunId: (admitted as { run: { id: string } }).run.id });
  });

  test('comes at once after one that nobody has claimed, or whose cancel is overdue', async () => {
    const unclaimed = await aTurn(t.db, newSession());
    expect(await withPolicy('interrupt', turnOf(unclaimed.run.sessionId as string))).toMatchObject({ disposition: 'created' });
    expect(await getRun(t.db, { tenantId, runId: unclaimed.run.id })).toMatchObject({
      status: 'cancelled',
      cancel: { reason: 'interrupt' },
    });

    const stubborn = await aClaimedTurn(t.db, newSession());
    await withPolicy('interrupt', turnOf(stubborn.run.sessionId as string));
    await passDeadlines(t.db, stubborn.run.id);
    expect(await withPolicy('interrupt', turnOf(stubborn.run.sessionId as string))).toMatchObject({ disposition: 'created' });
    expect(await story(t.db, stubborn.run.id)).toContain('cancel-fenced');
  });

  test('takes over a stale one under each policy', async () => {
    for (const policy of ['steer', 'interrupt'] as const) {
      const lost = await aClaimedTurn(t.db, newSession());
      await endLease(t.db, lost.run.id);
      expect(await withPolicy(policy, turnOf(lost.run.sessionId as string))).toMatchObject({ disposition: 'created' });
    }
  });

  describe('that asks for a place in the queue', () => {
    const enqueue = (call: ReturnType<typeof turnOf>) =>
      runs().admitTurn({ ...call, turn: { ...call.turn, busyPolicy: 'enqueue' as const } });
    const head = async (sessionId: string) => {
      const { rows } = await t.db.pool.query(
        `SELECT operation_id AS id, ready_at > runplane.app_now() + interval '1 second' AS "isHeldBack" FROM runplane.submission_heads WHERE session_id = $1`,
        [sessionId],
      );
      return rows[0] as unknown;
    };

    test('waits behind the open one and those before it, in the order of their calls; a repeat is a repeat', async () => {
      const sessionId = newSession();
      const open = await aClaimedTurn(t.db, sessionId);

      const first = await enqueue(turnOf(sessionId, 'one'));
      const second = await enqueue(turnOf(sessionId, 'two'));
      expect([first, second]).toMatchObject([
        { disposition: 'queued', sessionId, operationId: 'one', state: 'pending', ahead: 0, replayed: false, lastError: null },
        { disposition: 'queued', operationId: 'two', ahead: 1, replayed: false },
      ]);
      expect(await enqueue(turnOf(sessionId, 'two'))).toEqual({ ...second, replayed: true });
      expect(await getSubmission(t.db, { tenantId, sessionId, operationId: 'one' })).toMatchObject({
        kind: 'turn',
        payload: { run: { projectId: 'p1' }, payload: { text: 'and now' }, dispatch: { kind: 'runner-job' } },
        state: 'pending',
        runId: null,
      });
      for (const policy of ['reject', 'enqueue'] as const) {
        const other = turnOf(sessionId, 'one', 'other words');
        await expect(runs().admitTurn({ ...other, turn: { ...other.turn, busyPolicy: policy } })).rejects.toMatchObject({
          code: 'idempotency_conflict',
          data: { resource: 'turn', id: (first as { submissionId: string }).submissionId },
        });
      }
      await expect(runs().admitTurn(turnOf(sessionId, 'three'))).rejects.toMatchObject({ code: 'session_busy' });

      expect(await head(sessionId)).toEqual({ id: 'one', isHeldBack: true });
      await runs().finishRun({ ...keyOf(open), outcome: completed });
      expect(await head(sessionId)).toEqual({ id: 'one', isHeldBack: false });
      expect(await enqueue(turnOf(sessionId, 'three'))).toMatchObject({ disposition: 'queued', ahead: 2 }); // free, but others were first
    });

    test('is called by the end of the open turn alone too, starts at once in a free session, and takes a stale one over', async () => {
      const sessionId = newSession();
      const open = await aClaimedTurn(t.db, sessionId);
      await enqueue(turnOf(sessionId));
      await runs().finishCommand({ ...keyOf(open), commandId: open.command.id, outcome: completed });
      expect(await head(sessionId)).toEqual({ id: 'new', isHeldBack: false });

      expect(await enqueue(turnOf(newSession()))).toMatchObject({ disposition: 'created' });
      const lost = await aClaimedTurn(t.db, newSession());
      await endLease(t.db, lost.run.id);
      expect(await enqueue(turnOf(lost.run.sessionId as string))).toMatchObject({ disposition: 'created' });
    });

    test('of twins of a key one is queued, and the other finds it; a failed one says why', async () => {
      const sessionId = newSession();
      await aClaimedTurn(t.db, sessionId);
      const twins = await Promise.all(Array.from({ length: 6 }, () => enqueue(turnOf(sessionId))));
      expect(new Set(twins.map((twin) => (twin as { submissionId: string }).submissionId)).size).toBe(1);
      expect(twins.filter(({ replayed }) => !replayed)).toHaveLength(1);

      await inTransaction(t.db, (tx) =>
        endSubmission(tx, { tenantId, sessionId, operationId: 'new', end: { state: 'failed', error: 'session_boundary: no' } }),
      );
      expect(await enqueue(turnOf(sessionId))).toMatchObject({
        state: 'failed',
        lastError: 'session_boundary: no',
        ahead: 0,
        replayed: true,
      });
      const elsewhere = turnOf(sessionId, 'k2');
      await expect(enqueue({ ...elsewhere, turn: { ...elsewhere.turn, run: newRun({ projectId: 'p2' }) } })).rejects.toMatchObject({
        code: 'session_boundary',
      });
    });
  });
});
