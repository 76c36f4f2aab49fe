import { createClient } from '@runplane/client';
import { makeWorld } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

const all = async <T>(rows: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = [];
  for await (const row of rows) found.push(row);
  return found;
};

test('the client reads every page of runs, events and output', async () => {
  const url = await api.app.listen({ port: 0, host: '127.0.0.1' });
  const client = createClient({ url, apiKey: api.adminKey });
  const { runId, sessionId, commandId, epoch } = await makeWorld(api);
  const others = [await makeWorld(api), await makeWorld(api)];
  await client.finishRun(runId, { epoch, outcome: { terminalStatus: 'completed' } });

  const runs = await all(client.iterateRuns({ limit: 1, sort: 'id-asc' }));
  expect(runs.map(({ id }) => id)).toEqual([runId, ...others.map((world) => world.runId)].sort());
  expect(runs.find(({ id }) => id === runId)?.latestCommand).toMatchObject({ id: commandId, state: 'completed' });
  expect(await client.listRuns({ status: ['completed', 'failed'], search: sessionId, total: true })).toMatchObject({
    runs: [{ id: runId }],
    cursor: null,
    total: 1,
    totalIsExact: true,
  });
  expect((await client.getRunFacets()).statusCounts).toMatchObject({ claimed: 2, completed: 1 });

  const { events, lastSeq } = await client.listEvents(runId, { limit: 500 });
  expect(await client.countEvents(runId, { after: 2 })).toEqual({ count: lastSeq - 2 });
  expect(await all(client.iterateSessionTrace(sessionId))).toEqual(events);
  expect(await all(client.iterateSessionTrace(sessionId, { runs: 'all' }))).toEqual(events);
  const output = await all(client.iterateRunOutput(runId));
  expect(output.map(({ type }) => type)).toEqual(['user_message', 'terminal_status']);
  expect(await all(client.iterateSessionOutput(sessionId, { runId }))).toEqual(output);
  expect((await all(client.iterateCommandEvents(runId, commandId))).at(-1)?.type).toBe('terminal_status');
});

test.each([
  'runs?sort=newest',
  'runs?limit=101',
  'runs?limit=1.5',
  'runs?updatedAfter=yesterday',
  'runs?total=yes',
  `runs?search=${'x'.repeat(201)}`,
  'runs?cursor=abc',
  'runs?page=2',
  'runs/:runId/output?cursor=abc',
  'runs/:runId/events/count?after=-1',
  'sessions/:sessionId/output?runs=some',
  'sessions/:sessionId/trace?runs=all&runId=r',
])('GET /v1/%s is 400', async (path) => {
  const { runId, sessionId } = await makeWorld(api);
  const { status, body } = await api.call('GET', `/v1/${path.replace(':runId', runId).replace(':sessionId', sessionId)}`);
  expect([status, body.code]).toEqual([400, path.includes('cursor') ? 'invalid_cursor' : 'invalid_request']);
});
