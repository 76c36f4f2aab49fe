import { makeWorld } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

const turn = (busyPolicy: string) => ({ run: { projectId: 'p', backendProfile: 'shell' }, payload: { text: 'now' }, busyPolicy });
const post = (path: string, key: string | undefined, body: unknown) =>
  api.call('POST', `/v1/sessions/${path}`, { body, ...(key === undefined ? {} : { headers: { 'idempotency-key': key } }) });

test('a steer is 201, its repeat 200, and what is in its way is said', async () => {
  const { sessionId, runId, commandId, runnerId, epoch } = await makeWorld(api);
  const body = { payload: { text: 'to the left' } };

  const steer = await post(`${sessionId}/steers`, 's', body);
  expect(steer).toMatchObject({
    status: 201,
    body: { disposition: 'steered', run: { id: runId }, target: { id: commandId }, holder: runnerId, replayed: false },
  });
  expect(await post(`${sessionId}/steers`, 's', body)).toMatchObject({
    status: 200,
    body: { command: { id: steer.body.command.id }, replayed: true },
  });
  expect(await post(`${sessionId}/turns`, 's', { ...turn('steer'), payload: body.payload })).toMatchObject({
    status: 200,
    body: { disposition: 'steered', command: { id: steer.body.command.id } },
  });
  expect(await post(`${sessionId}/steers`, 's', { payload: {} })).toMatchObject({ status: 409, body: { code: 'idempotency_conflict' } });
  expect(await post(`${sessionId}/steers`, undefined, body)).toMatchObject({ status: 400, body: { code: 'idempotency_key_required' } });

  await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });
  expect(await post(`${sessionId}/steers`, 'late', body)).toMatchObject({
    status: 409,
    body: { code: 'no_receivable_turn', retryable: false, data: { sessionId, why: 'no-turn' } },
  });
});

test('a turn that interrupts is 202 until the open one has ended, and one with a policy that there is not is 400', async () => {
  const { sessionId, runId, commandId, runnerId, epoch } = await makeWorld(api);

  const waiting = await post(`${sessionId}/turns`, 't', turn('interrupt'));
  const { rows } = await api.db.pool.query(`SELECT id FROM runplane.api_keys WHERE name = 'test' AND tenant_id = 'acme'`);
  expect(waiting).toMatchObject({
    status: 202,
    headers: { 'retry-after': '1' },
    body: { disposition: 'interrupting', runId, commandId, holder: runnerId, request: { requestedBy: rows[0].id, reason: 'interrupt' } },
  });
  expect(waiting.body.deadlineRemainingMs).toBeGreaterThan(20_000);
  await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'cancelled' } } });
  expect(await post(`${sessionId}/turns`, 't', turn('interrupt'))).toMatchObject({ status: 201, body: { disposition: 'created' } });
  expect(await post(`${sessionId}/turns`, 't', turn('interrupt'))).toMatchObject({ status: 200, body: { disposition: 'replayed' } });
  expect(await post(`${sessionId}/turns`, 't2', turn('later'))).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
});

test('a turn that waits in the queue is 202 with its place, its repeat 200', async () => {
  const { sessionId } = await makeWorld(api);

  const queued = await post(`${sessionId}/turns`, 'q', turn('enqueue'));
  expect(queued).toMatchObject({ status: 202, body: { disposition: 'queued', operationId: 'q', state: 'pending', replayed: false } });
  expect(await post(`${sessionId}/turns`, 'q', turn('enqueue'))).toMatchObject({
    status: 200,
    body: { disposition: 'queued', submissionId: queued.body.submissionId, place: queued.body.place, replayed: true },
  });
});

test('a runner’s wait for commands ends with the next one, and with the run', async () => {
  const { sessionId, runId, epoch } = await makeWorld(api);
  const key = await api.makeRunToken(runId);
  const wait = (after: number) => api.call('GET', `/v1/runs/${runId}/commands?after=${after}&wait=20`, { key });

  const [heard] = await Promise.all([wait(1), post(`${sessionId}/steers`, 's', { payload: {} })]);
  expect(heard).toMatchObject({ status: 200, body: { commands: [{ type: 'steer', seq: 2 }] } });
  const [over] = await Promise.all([
    wait(2),
    api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } }),
  ]);
  expect(over).toMatchObject({ status: 200, body: { commands: [] } });
});
