import { createClient, type Client } from '@runplane/client';
import { newId, type Outcome } from '@runplane/contracts';
import { expireRequestsOnce } from '@runplane/sessions';
import { runRunner, type RunnerContext } from '@runplane/runner';
import { useApi } from '../support/test-api';
import { until } from '../support/until';

// People answer what agents ask: the runner waits, the product shows and decides, everybody sees the same.

const api = useApi();
let url: string;
let product: Client;
beforeAll(async () => {
  url = await api.app.listen({ host: '127.0.0.1', port: 0 });
  product = createClient({
    url,
    apiKey: await api.makeKey(['runs:read', 'runs:write', 'sessions:read', 'sessions:write', 'approvals:resolve', 'feed:read']),
  });
});

/** A turn with a runner at work on it. */
async function aTurn(work: (context: RunnerContext) => Promise<Outcome>, run: object = {}) {
  const sessionId = newId('s');
  const turn = { run: { projectId: 'p', backendProfile: 'shell', ...run }, payload: { text: 'deploy' } };
  const { run: made } = await product.admitTurn(sessionId, turn, { idempotencyKey: 'turn-1' });
  const token = await api.makeRunToken(made.id);
  const ended = runRunner({ client: { url, token }, runId: made.id, work });
  return { sessionId, runId: made.id, token, ended };
}

const pendingOf = (sessionId: string) =>
  until('there is an approval that waits', async () => (await product.listPendingApprovals({ sessionId })).approvals[0]);

test('a runner asks before it acts, a person approves, and only that call is made', async () => {
  const made: unknown[] = [];
  const { sessionId, runId, token, ended } = await aTurn(async ({ approve, emit }) => {
    const args = { target: 'production' };
    const { outcome } = await approve({ toolName: 'deploy', arguments: args, reason: 'it touches customers' });
    if (outcome !== 'approved') return { terminalStatus: 'blocked', failureKind: 'not-approved' };
    made.push(args);
    await emit('assistant_message', { text: 'deployed', final: true });
    return { terminalStatus: 'completed' };
  });
  const { approvalId, argumentsSummary, expiresInMs } = await pendingOf(sessionId);
  expect([argumentsSummary, made]).toEqual([{ target: 'production' }, []]);
  expect(expiresInMs).toBeGreaterThan(200_000);

  const asRunner = createClient({ url, apiKey: token });
  const decision = { resolution: 'approved', actor: { type: 'user', id: 'ann' } } as const;
  await expect(asRunner.resolveApproval(sessionId, approvalId, decision)).rejects.toMatchObject({ code: 'forbidden' });
  const asOther = createClient({ url, apiKey: await api.makeKey(['runner', 'runs:write', 'sessions:write', 'sessions:read']) });
  await expect(asOther.resolveApproval(sessionId, approvalId, decision)).rejects.toMatchObject({ code: 'forbidden' });
  await product.resolveApproval(sessionId, approvalId, decision);

  expect(await ended).toMatchObject({ kind: 'finished', run: { status: 'completed' } });
  expect(made).toEqual([{ target: 'production' }]);
  expect(await product.resolveApproval(sessionId, approvalId, decision)).toMatchObject({ replayed: true, approval: { runId } });
  expect((await product.listPendingApprovals({ sessionId })).approvals).toEqual([]);
});

test('a rejected call is not made; a question is answered as its schema says', async () => {
  const { sessionId, ended } = await aTurn(async ({ approve, ask }) => {
    const { outcome } = await approve({ toolName: 'rm', arguments: ['-rf', '/'] });
    const { value } = await ask({ prompt: 'Then what?', inputSchema: { enum: ['nothing', 'something'] } });
    return { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: `${outcome}, ${JSON.stringify(value)}` };
  });
  const { approvalId } = await pendingOf(sessionId);
  await product.resolveApproval(sessionId, approvalId, { resolution: 'rejected', reason: 'no' });
  const { requestId } = await until('there is a question', async () => (await product.listPendingInputs({ sessionId })).requests[0]);

  const wrong = product.resolveInput(sessionId, requestId, { outcome: 'answered', value: 'everything' });
  await expect(wrong).rejects.toMatchObject({ code: 'invalid_input_value', status: 400 });
  await product.resolveInput(sessionId, requestId, { outcome: 'answered', value: 'nothing' });

  expect(await ended).toMatchObject({ run: { failure: { message: 'rejected, "nothing"' } } });
});

test('work that changes a call after it was approved is stopped', async () => {
  const { sessionId, ended } = await aTurn(async ({ approve }) => {
    const args = { target: 'staging' };
    const asked = approve({ toolName: 'deploy', arguments: args });
    args.target = 'production';
    await asked;
    return { terminalStatus: 'completed' };
  });
  const { approvalId, argumentsSummary } = await pendingOf(sessionId);
  await product.resolveApproval(sessionId, approvalId, { resolution: 'approved' });

  expect(argumentsSummary).toEqual({ target: 'staging' });
  expect(await ended).toMatchObject({
    run: { status: 'failed', failure: { message: expect.stringContaining('other arguments') as string } },
  });
});

test('a cancel ends the wait of the runner and what it asks; the later click is told so', async () => {
  const { sessionId, runId, ended } = await aTurn(async ({ approve }) => {
    await approve({ toolName: 'deploy', arguments: {} });
    return { terminalStatus: 'completed' };
  });
  const { approvalId } = await pendingOf(sessionId);

  await product.cancelRun(runId, { reason: 'enough' });

  expect(await ended).toMatchObject({ kind: 'finished', run: { status: 'cancelled' } });
  const late = product.resolveApproval(sessionId, approvalId, { resolution: 'approved' });
  await expect(late).rejects.toMatchObject({ code: 'approval_not_pending', data: { state: 'cancelled' } });
  expect(await product.getApproval(sessionId, approvalId)).toMatchObject({ outcome: 'cancelled', resolutionReason: 'run cancelled' });
});

test('what nobody decides in time is expired, which is no denial: the work goes on as it likes', async () => {
  const { sessionId, ended } = await aTurn(async ({ approve }) => {
    const { outcome } = await approve({ toolName: 'deploy', arguments: {}, timeoutSeconds: 1 });
    return { terminalStatus: 'blocked', failureKind: outcome };
  });
  await pendingOf(sessionId);
  await until('there is the end of its time', async () => (await expireRequestsOnce(api.db)).changed > 0);

  expect(await ended).toMatchObject({ run: { status: 'blocked', failure: { kind: 'expired' } } });
});

test('the next runner of a requeued run finds the answer that the lost one waited for', async () => {
  const call = { toolName: 'deploy', arguments: { to: 'x' }, approvalId: 'call-1' };
  const first = async ({ approve }: RunnerContext): Promise<Outcome> => {
    await approve(call);
    return { terminalStatus: 'failed', failureKind: 'backend-failed' };
  };
  const { sessionId, runId, token, ended } = await aTurn(first, { onRunnerLost: 'requeue' });
  await pendingOf(sessionId);
  await api.db.pool.query(`UPDATE runplane.run_leases SET expires_at = runplane.app_now() WHERE run_id = $1`, [runId]);
  const second = await runRunner({
    client: { url, token },
    runId,
    claimWaitMs: 20_000,
    work: async ({ approve }) => {
      const asked = approve(call);
      await product.resolveApproval(sessionId, 'call-1', { resolution: 'approved' });
      return { terminalStatus: (await asked).outcome === 'approved' ? 'completed' : 'cancelled' };
    },
  });

  expect(second).toMatchObject({ kind: 'finished', run: { status: 'completed' } });
  expect((await ended).kind).toBe('lost');
});

test('a wait by HTTP ends with its client, decides nothing, and an operator is told what is waited for', async () => {
  const { sessionId, runId, ended } = await aTurn(async ({ approve }) => {
    await approve({ toolName: 'deploy', arguments: {} });
    return { terminalStatus: 'completed' };
  });
  const { approvalId } = await pendingOf(sessionId);
  const gone = new AbortController();
  const waiting = product.getApproval(sessionId, approvalId, { waitSeconds: 30, signal: gone.signal });
  gone.abort(new Error('closed the tab'));
  await expect(waiting).rejects.toThrow('closed the tab');

  expect(await product.getApproval(sessionId, approvalId, { waitSeconds: 0 })).toMatchObject({ outcome: 'pending', revision: 0 });
  const others = product.getApproval(sessionId, approvalId, { waitSeconds: 30 });
  await product.resolveApproval(sessionId, approvalId, { resolution: 'approved' });
  expect(await others).toMatchObject({ outcome: 'approved', actor: { type: 'service' } });
  expect(await ended).toMatchObject({ run: { id: runId, status: 'completed' } });
});
