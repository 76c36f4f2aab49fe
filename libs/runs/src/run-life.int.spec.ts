import type { NewRunEvent } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getSession } from '@runplane/sessions';
import {
  ackCommand,
  acknowledgeCancel,
  appendRunEvents,
  cancelCommand,
  cancelRun,
  claimRun,
  createCommand,
  createRun,
  createRuns,
  failUnclaimedRunsOnce,
  finishCommand,
  finishRun,
  getCommand,
  getDispatchIntent,
  getRun,
  getRunResult,
  heartbeat,
  listCancelRequests,
  listRunEvents,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from './index';
import {
  aClaimedRun,
  aClaimedTurn,
  aRun,
  aRunner,
  aTurn,
  endLease,
  makeTenants,
  message,
  newRun,
  passDeadlines,
  story,
  TENANT,
} from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;

describe('a turn from request to result', () => {
  test('is admitted, claimed, worked on and finished, and frees its session', async () => {
    const { run, command, intent, disposition } = await aTurn(t.db, 's1');
    expect({ disposition, status: run.status, state: command.state, intent: intent?.state }).toEqual({
      disposition: 'created',
      status: 'pending',
      state: 'pending',
      intent: 'pending',
    });
    expect(await getSession(t.db, { tenantId, sessionId: 's1' })).toMatchObject({
      executionState: 'running',
      activeRunId: run.id,
      activeCommandId: command.id,
      title: 'hello',
    });

    const claim = await claimRun(t.db, { tenantId, runId: run.id, runnerId: 'r1' });
    expect(claim).toMatchObject({ epoch: 1, commands: [{ id: command.id, payload: { text: 'hello' } }] });
    expect(claim.leaseRemainingMs).toBeGreaterThan(25_000);
    await inTransaction(t.db, (tx) => ackCommand(tx, { tenantId, runId: run.id, commandId: command.id, epoch: 1 }));
    const appended = await appendRunEvents(t.db, {
      tenantId,
      runId: run.id,
      epoch: 1,
      producerSequence: 1,
      events: [message('draft'), message('done')],
    });
    expect(appended).toMatchObject({ firstSeq: 6, lastSeq: 7, replayed: false });
    await appendRunEvents(t.db, {
      tenantId,
      runId: run.id,
      epoch: 1,
      events: [{ type: 'usage', payload: { model: 'm', inputTokens: 3, outputTokens: 4 } }],
    });
    const beat = await heartbeat(t.db, { tenantId, runId: run.id, epoch: 1 });
    expect(beat).toMatchObject({ runStatus: 'claimed', stop: false, cancel: null, commands: [{ id: command.id, state: 'acknowledged' }] });
    const finished = await inTransaction(t.db, (tx) =>
      finishRun(tx, { tenantId, runId: run.id, epoch: 1, outcome: completed, commandId: command.id }),
    );

    expect(finished).toMatchObject({ status: 'completed', claimedBy: null, leaseRemainingMs: null, failure: null });
    expect(await story(t.db, run.id)).toEqual([
      'run-created',
      'user_message',
      'command-created',
      'run-claimed',
      'command-acknowledged',
      'assistant_message',
      'assistant_message',
      'usage',
      'command-terminal',
      'terminal_status',
    ]);
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({ state: 'completed' });
    expect((await getDispatchIntent(t.db, { tenantId, commandId: command.id }))?.state).toBe('cancelled');
    expect(await getSession(t.db, { tenantId, sessionId: 's1' })).toMatchObject({
      executionState: 'terminal',
      activeRunId: null,
      terminalStatus: 'completed',
      lastRunId: run.id,
    });
    expect(await getRunResult(t.db, { tenantId, runId: run.id })).toMatchObject({
      finished: true,
      lastAssistantMessage: 'done',
      usage: [{ model: 'm', inputTokens: 3, outputTokens: 4, costMicros: null }],
    });
    expect(await heartbeat(t.db, { tenantId, runId: run.id, epoch: 1 })).toMatchObject({ stop: true, runStatus: 'completed' });
  });

  test('repeated with its key is answered with what the first call made; with other content it is refused', async () => {
    const first = await aTurn(t.db, 's2');
    const key = first.command.idempotencyKey as string;
    const runs = createRuns(t.db);
    const again = await runs.admitTurn({
      tenantId,
      sessionId: 's2',
      turn: { run: newRun(), payload: { text: 'hello' } },
      idempotencyKey: key,
    });
    expect(again).toMatchObject({ disposition: 'replayed', replayed: true, run: { id: first.run.id }, command: { id: first.command.id } });
    await expect(
      runs.admitTurn({ tenantId, sessionId: 's2', turn: { run: newRun(), payload: { text: 'other' } }, idempotencyKey: key }),
    ).rejects.toMatchObject({ code: 'idempotency_conflict' });
    await expect(
      runs.admitTurn({ tenantId, sessionId: 's2', turn: { run: newRun(), payload: { text: 'hello' } }, idempotencyKey: 'k2' }),
    ).rejects.toMatchObject({
      code: 'session_busy',
      data: { runId: first.run.id, holder: null },
    });
    await expect(
      runs.admitTurn({
        tenantId,
        sessionId: 's2',
        turn: { run: newRun({ projectId: 'p2' }), payload: { text: 'hello' } },
        idempotencyKey: 'k3',
      }),
    ).rejects.toMatchObject({ code: 'session_boundary' });
  });

  test('whose runner is dead is taken over by the next turn', async () => {
    const old = await aClaimedTurn(t.db, 's3');
    await endLease(t.db, old.run.id);
    const next = await aTurn(t.db, 's3');
    expect(next.run.id).not.toBe(old.run.id);
    expect(await getRun(t.db, { tenantId, runId: old.run.id })).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed' } });
    expect((await story(t.db, old.run.id)).slice(-3)).toEqual([
      'session-turn-admission-stale-terminalized',
      'command-terminal',
      'terminal_status',
    ]);
    await expect(createRuns(t.db).finishRun({ tenantId, runId: old.run.id, epoch: old.epoch, outcome: completed })).rejects.toMatchObject({
      code: 'run_closed',
    });
    expect((await story(t.db, old.run.id)).at(-1)).toBe('late-write-rejected');
  });
});

describe('a run', () => {
  test('with a reserved identity is created once', async () => {
    const make = (over = {}) => inTransaction(t.db, (tx) => createRun(tx, { tenantId, run: newRun(over), runId: 'run_mine' }));
    expect(await make()).toMatchObject({ replayed: false, run: { id: 'run_mine' } });
    expect(await make()).toMatchObject({ replayed: true });
    await expect(make({ providerId: 'x' })).rejects.toMatchObject({ code: 'idempotency_conflict' });
  });

  test('of another tenant is not found', async () => {
    const run = await aRun(t.db);
    await expect(getRun(t.db, { tenantId: 'other', runId: run.id })).rejects.toMatchObject({ code: 'run_not_found' });
    await expect(claimRun(t.db, { tenantId: 'other', runId: run.id, runnerId: 'x' })).rejects.toMatchObject({ code: 'run_not_found' });
    await expect(inTransaction(t.db, (tx) => cancelRun(tx, { tenantId: 'other', runId: run.id }))).rejects.toMatchObject({
      code: 'run_not_found',
    });
    expect(await getRun(t.db, { tenantId, runId: run.id })).toEqual(run); // nothing has touched it
  });

  test('is held by one runner; a repeated claim keeps its epoch, an ended lease is taken over under the next', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const key = { tenantId, runId: run.id };
    expect(await claimRun(t.db, { ...key, runnerId: run.claimedBy as string })).toMatchObject({ epoch });
    await expect(claimRun(t.db, { ...key, runnerId: aRunner() })).rejects.toMatchObject({
      code: 'run_claimed',
      data: { claimedBy: run.claimedBy },
    });
    await endLease(t.db, run.id);
    await expect(heartbeat(t.db, { ...key, epoch })).rejects.toMatchObject({ code: 'lease_expired' });
    expect(await claimRun(t.db, { ...key, runnerId: run.claimedBy as string })).toMatchObject({ epoch: epoch + 1 });
    await expect(heartbeat(t.db, { ...key, epoch })).rejects.toMatchObject({ code: 'lease_lost' });
    await expect(appendRunEvents(t.db, { ...key, epoch, events: [message('late')] })).rejects.toMatchObject({ code: 'lease_lost' });
    expect(await story(t.db, run.id)).toEqual(['run-created', 'run-claimed', 'claim-lost', 'run-claimed', 'stale-writer-refused']);
  });

  test('takes batches in producer order and answers repeats with what is stored', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const append = (producerSequence: number, text: string) =>
      appendRunEvents(t.db, { tenantId, runId: run.id, epoch, producerSequence, events: [message(text)] });
    const first = await append(1, 'a');
    await expect(append(3, 'c')).rejects.toMatchObject({ code: 'producer_gap', data: { expected: 2 } });
    expect(await append(1, 'a')).toEqual({ ...first, replayed: true });
    await expect(append(1, 'b')).rejects.toMatchObject({ code: 'producer_conflict' });
    await inTransaction(t.db, (tx) => finishRun(tx, { tenantId, runId: run.id, epoch, outcome: completed }));
    expect(await append(1, 'a')).toEqual({ ...first, replayed: true });
    await expect(append(2, 'b')).rejects.toMatchObject({ code: 'run_closed' });
    await expect(append(2, 'b')).rejects.toMatchObject({ code: 'run_closed' });
    expect((await story(t.db, run.id)).slice(-2)).toEqual(['terminal_status', 'late-write-rejected']);
  });

  test('refuses events that only the server may write, and commands that are not its own', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const append = (type: string, payload: Record<string, never> | object) =>
      appendRunEvents(t.db, { tenantId, runId: run.id, epoch, events: [{ type, payload: payload as Record<string, string> }] });
    await expect(append('terminal_status', {})).rejects.toMatchObject({ code: 'reserved_event_type' });
    await expect(append('backend_status', { phase: 'cancel-fenced' })).rejects.toMatchObject({ code: 'reserved_event_type' });
    await expect(append('nonsense', {})).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(append('assistant_message', { text: 'x', commandId: 'cmd_unknown' })).rejects.toMatchObject({
      code: 'command_not_of_run',
    });
    await expect(append('assistant_message', { text: 'x', surplus: 1 })).rejects.toMatchObject({ code: 'invalid_request' });
    await append('custom/thing', { password: 'hunter2' });
    const { events } = await listRunEvents(t.db, { tenantId, runId: run.id, afterSeq: 2 });
    expect(events).toMatchObject([{ type: 'custom/thing', payload: { password: '[redacted]' } }]);
  });

  test('closes open tool calls when it ends', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const call = (callId: string) => ({ type: 'tool_call', payload: { callId, name: 'ls', arguments: {} } });
    await appendRunEvents(t.db, {
      tenantId,
      runId: run.id,
      epoch,
      events: [call('a'), call('b'), { type: 'tool_result', payload: { callId: 'a', status: 'ok', output: null } }],
    });
    await inTransaction(t.db, (tx) =>
      finishRun(tx, { tenantId, runId: run.id, epoch, outcome: { terminalStatus: 'failed', failureKind: 'backend-failed' } }),
    );
    const { events } = await listRunEvents(t.db, { tenantId, runId: run.id, afterSeq: 5 });
    expect(events).toMatchObject([{ type: 'tool_result', payload: { callId: 'b', status: 'lost' } }, { type: 'terminal_status' }]);
  });
});

describe('a run with very many open tool calls', () => {
  test('takes no more than it can close when it ends', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const key = { tenantId, runId: run.id };
    const call = (callId: string) => ({ type: 'tool_call', payload: { callId, name: 'ls', arguments: {} } });
    const append = (events: NewRunEvent[]) => appendRunEvents(t.db, { ...key, epoch, events });
    const calls = (batch: number) => Array.from({ length: 500 }, (_, i) => call(`${batch} ${i}`));
    for (let batch = 0; batch < 20; batch += 1) await append(calls(batch));
    await expect(append([call('one more')])).rejects.toMatchObject({
      code: 'too_many_open_tool_calls',
      data: { open: 10_000, openMax: 10_000 },
    });
    const result = { type: 'tool_result', payload: { callId: '0 0', status: 'ok', output: null } };
    await append([result, message('other events go on')]);
    await append([call('one more')]); // counted anew: one is closed
    await inTransaction(t.db, (tx) => finishRun(tx, { ...key, epoch, outcome: completed }));
    expect((await getRun(t.db, key)).lastEventSeq).toBe(2 + 10_000 + 2 + 1 + 10_000 + 1);
    await t.db.pool.query('DELETE FROM runplane.run_events WHERE run_id = $1', [run.id]); // too many for the checker after each test
    await t.db.pool.query('DELETE FROM runplane.outbox_events WHERE run_id = $1', [run.id]);
    await t.db.pool.query('DELETE FROM runplane.runs WHERE id = $1', [run.id]);
  });
});

describe('a cancel', () => {
  test('of an unclaimed run ends it at once', async () => {
    const { run, command } = await aTurn(t.db);
    const cancelled = await inTransaction(t.db, (tx) =>
      cancelRun(tx, { tenantId, runId: run.id, reason: 'no need', requestedBy: 'key_1' }),
    );
    expect(cancelled).toMatchObject({
      changed: true,
      run: { status: 'cancelled', failure: { kind: 'cancelled', message: 'no need' } },
      request: { stage: 'terminalized', requestedBy: 'key_1' },
    });
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({
      state: 'cancelled',
      cancel: { requestId: cancelled.request?.id },
    });
    expect((await story(t.db, run.id)).slice(-5)).toEqual([
      'cancel-accepted',
      'cancel-persisted',
      'command-terminal',
      'terminal_status',
      'cancel-terminalized',
    ]);
    expect(await inTransaction(t.db, (tx) => cancelRun(tx, { tenantId, runId: run.id }))).toMatchObject({ changed: false });
  });

  test('of a claimed run waits for its runner, which learns of it and ends it', async () => {
    const { run, epoch } = await aClaimedTurn(t.db);
    const key = { tenantId, runId: run.id };
    expect(await inTransaction(t.db, (tx) => cancelRun(tx, key))).toMatchObject({
      run: { status: 'cancelling' },
      request: { stage: 'persisted' },
    });
    expect(await heartbeat(t.db, { ...key, epoch })).toMatchObject({ runStatus: 'cancelling', cancel: { reason: 'cancel requested' } });
    await inTransaction(t.db, (tx) => acknowledgeCancel(tx, { ...key, epoch, stage: 'delivered' }));
    await appendRunEvents(t.db, { ...key, epoch, events: [message('stopping')] });
    await inTransaction(t.db, (tx) => acknowledgeCancel(tx, { ...key, epoch, stage: 'aborting' }));
    expect(await inTransaction(t.db, (tx) => finishRun(tx, { ...key, epoch, outcome: { terminalStatus: 'cancelled' } }))).toMatchObject({
      status: 'cancelled',
    });
    expect((await story(t.db, run.id)).slice(4)).toEqual([
      'cancel-accepted',
      'cancel-persisted',
      'cancel-delivered',
      'assistant_message',
      'cancel-aborting',
      'command-terminal',
      'terminal_status',
      'cancel-terminalized',
    ]);
    expect((await listCancelRequests(t.db, key)).requests).toMatchObject([{ stage: 'terminalized' }]);
  });

  test('that its runner ignores is completed at the deadline; an immediate one at once', async () => {
    const ignored = await aClaimedTurn(t.db);
    await inTransaction(t.db, (tx) => cancelRun(tx, { tenantId, runId: ignored.run.id }));
    expect(await sweepCancelDeadlinesOnce(t.db)).toEqual({ changed: 0, failed: 0 });
    await passDeadlines(t.db, ignored.run.id);
    expect(await sweepCancelDeadlinesOnce(t.db)).toEqual({ changed: 1, failed: 0 });
    expect(await getRun(t.db, { tenantId, runId: ignored.run.id })).toMatchObject({ status: 'cancelled' });
    expect(await story(t.db, ignored.run.id)).toContain('cancel-fenced');

    const urgent = await aClaimedTurn(t.db);
    expect(await inTransaction(t.db, (tx) => cancelRun(tx, { tenantId, runId: urgent.run.id, immediate: true }))).toMatchObject({
      run: { status: 'cancelled' },
    });
  });

  test('of a command leaves the run open and frees the session when the command ends', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db, 's-cancel-command');
    const key = { tenantId, runId: run.id };
    expect(await inTransaction(t.db, (tx) => cancelCommand(tx, { tenantId, commandId: command.id }))).toMatchObject({
      changed: true,
      command: { state: 'pending' },
    });
    expect(await heartbeat(t.db, { ...key, epoch })).toMatchObject({ cancelledCommands: [command.id], runStatus: 'claimed' });
    await inTransaction(t.db, (tx) =>
      finishCommand(tx, { ...key, commandId: command.id, epoch, outcome: { terminalStatus: 'cancelled' } }),
    );
    expect(await getRun(t.db, key)).toMatchObject({ status: 'claimed' });
    expect(await getSession(t.db, { tenantId, sessionId: 's-cancel-command' })).toMatchObject({
      activeRunId: null,
      terminalStatus: 'cancelled',
    });
    const next = await inTransaction(t.db, (tx) =>
      createCommand(tx, { ...key, command: { type: 'turn', payload: { text: 'next' } }, idempotencyKey: 'next' }),
    );
    expect(next.command).toMatchObject({ seq: 2, type: 'turn' });
    expect(await getSession(t.db, { tenantId, sessionId: 's-cancel-command' })).toMatchObject({
      activeRunId: run.id,
      activeCommandId: next.command.id,
    });
  });
});

describe('a lost runner', () => {
  test('fails its run by default', async () => {
    const { run } = await aClaimedTurn(t.db);
    await endLease(t.db, run.id);
    expect(await sweepLostRunnersOnce(t.db)).toMatchObject({ changed: 1 });
    expect(await getRun(t.db, { tenantId, runId: run.id })).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
  });

  test('whose run may be repeated is replaced, up to the attempts of the run', async () => {
    const { run, command, epoch } = await aClaimedTurn(t.db, undefined, { run: newRun({ onRunnerLost: 'requeue', maxAttempts: 2 }) });
    const key = { tenantId, runId: run.id };
    await inTransaction(t.db, (tx) => ackCommand(tx, { ...key, commandId: command.id, epoch }));
    await endLease(t.db, run.id);
    await sweepLostRunnersOnce(t.db);
    expect(await getRun(t.db, key)).toMatchObject({ status: 'pending', claimEpoch: epoch + 1, claimedBy: null });
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({ state: 'pending', acknowledgedAt: null });
    expect(await getDispatchIntent(t.db, { tenantId, commandId: command.id })).toMatchObject({ state: 'pending', generation: 2 });
    await expect(appendRunEvents(t.db, { ...key, epoch, events: [message('late')] })).rejects.toMatchObject({ code: 'lease_lost' });
    expect(await claimRun(t.db, { ...key, runnerId: aRunner() })).toMatchObject({ epoch: epoch + 2, run: { attempts: 2 } });
    await endLease(t.db, run.id);
    await sweepLostRunnersOnce(t.db);
    expect(await getRun(t.db, key)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
  });

  test.each(['nothing', 'a turn that nobody dispatched'])(
    'that leaves %s to its successor fails its run all the same: nobody would ever come',
    async (left) => {
      const sessionId = `left ${left}`;
      const { run, command, epoch } = await aClaimedTurn(t.db, sessionId, { run: newRun({ onRunnerLost: 'requeue' }) });
      const key = { tenantId, runId: run.id };
      await inTransaction(t.db, (tx) => finishCommand(tx, { ...key, commandId: command.id, epoch, outcome: completed }));
      if (left !== 'nothing') {
        const second = { type: 'turn', payload: { text: 'more' } };
        await inTransaction(t.db, (tx) => createCommand(tx, { ...key, command: second, idempotencyKey: 'second' }));
      }
      await endLease(t.db, run.id);
      expect(await sweepLostRunnersOnce(t.db)).toEqual({ changed: 1, failed: 0 });
      expect(await getRun(t.db, key)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
      expect(await getSession(t.db, { tenantId, sessionId })).toMatchObject({ executionState: 'terminal' });
    },
  );

  test('takes a command along whose cancel was requested: no new runner is launched for it', async () => {
    const { run, command } = await aClaimedTurn(t.db, undefined, { run: newRun({ onRunnerLost: 'requeue' }) });
    await inTransaction(t.db, (tx) => cancelCommand(tx, { tenantId, commandId: command.id, reason: 'no need' }));
    await endLease(t.db, run.id);
    await sweepLostRunnersOnce(t.db);
    expect(await getCommand(t.db, { tenantId, commandId: command.id })).toMatchObject({
      state: 'cancelled',
      failure: { message: 'no need' },
    });
    expect(await listCancelRequests(t.db, { tenantId, runId: run.id })).toMatchObject({ requests: [{ stage: 'terminalized' }] });
    expect(await getRun(t.db, { tenantId, runId: run.id })).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
  });

  test('that is replaced for an earlier command keeps its turn: a new turn does not take the session over', async () => {
    const run = await aRun(t.db, { sessionRef: { sessionId: 's-requeued' }, onRunnerLost: 'requeue' });
    const key = { tenantId, runId: run.id };
    const runs = createRuns(t.db);
    await runs.createCommand({ ...key, command: { type: 'setup', payload: {}, dispatch: {} } });
    await runs.createCommand({ ...key, command: { type: 'turn', payload: { text: 'a' }, dispatch: {} }, idempotencyKey: 'a' });
    await claimRun(t.db, { ...key, runnerId: aRunner() });
    await endLease(t.db, run.id);
    await sweepLostRunnersOnce(t.db);

    const next = runs.admitTurn({
      tenantId,
      sessionId: 's-requeued',
      turn: { run: newRun(), payload: { text: 'b' } },
      idempotencyKey: 'b',
    });

    await expect(next).rejects.toMatchObject({ code: 'session_busy', data: { runId: run.id } });
  });

  test('that never came fails its run at the claim deadline', async () => {
    const { run } = await aTurn(t.db);
    expect(await failUnclaimedRunsOnce(t.db)).toEqual({ changed: 0, failed: 0 });
    await passDeadlines(t.db, run.id);
    expect(await failUnclaimedRunsOnce(t.db)).toEqual({ changed: 1, failed: 0 });
    expect(await getRun(t.db, { tenantId, runId: run.id })).toMatchObject({ status: 'failed' });
  });
});
