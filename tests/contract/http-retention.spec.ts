import { createClient } from '@runplane/client';
import { pruneRunEventsOnce, pruneRunsOnce, type ArchiveSink } from '@runplane/runs';
import { waitForHorizon } from '@runplane/database/testing';
import { openDbAhead } from '../support/races';
import { makeWorld } from '../support/route-samples';
import { OTHER_TENANT, TENANT, useApi } from '../support/test-api';

const api = useApi();
const completed = { terminalStatus: 'completed' } as const;

test('what retention would remove is told to its tenant alone; what it has removed is gone, not missing', async () => {
  const url = await api.app.listen({ port: 0, host: '127.0.0.1' });
  const client = createClient({ url, apiKey: api.adminKey, retry: { attemptsMax: 1 } });
  const first = await makeWorld(api);
  await client.finishRun(first.runId, { epoch: first.epoch, outcome: completed });
  const second = await client.admitTurn(
    first.sessionId,
    { run: { projectId: 'p', backendProfile: 'shell' }, payload: { text: 'x' } },
    { idempotencyKey: 'second' },
  );
  await client.cancelRun(second.run.id);
  await api.db.pool.query(
    `UPDATE runplane.runs SET finished_at = finished_at - interval '2 days', created_at = created_at - interval '2 days' WHERE id = $1`,
    [first.runId],
  );

  await api.db.pool.query('UPDATE runplane.runner_jobs SET settled_at = now()'); // until then it keeps its run
  const preview = await client.previewRetention({ policy: { runsDays: 1, archive: false } });
  expect(preview.kinds.find(({ kind }) => kind === 'runs')).toMatchObject({
    ids: [first.runId],
    rows: { runs: 1, commands: 1 },
    archiveMissing: false,
  });
  expect((await client.previewRetention({ policy: { runsDays: 1 } })).kinds[0]).toMatchObject({ ids: [], archiveMissing: true });
  const other = await api.call('POST', '/v1/admin/retention', {
    key: await api.makeKey(['admin'], OTHER_TENANT),
    body: { dryRun: true, policy: { runsDays: 1, archive: false } },
  });
  expect(other.body.kinds.flatMap(({ ids }: { ids: string[] }) => ids)).toEqual([]);
  for (const body of [{}, { dryRun: false }, { dryRun: true, policy: { runsDays: 0 } }, { dryRun: true, policy: { weeks: 1 } }])
    expect((await api.call('POST', '/v1/admin/retention', { body })).status).toBe(400);

  const later = await openDbAhead(api.url, 2 * 86_400_000);
  const pass = { tenantId: TENANT, archive: undefined as ArchiveSink | undefined, policy: { runsDays: 1, eventsDays: 1, archive: false } };
  expect((await pruneRunsOnce(later, pass)).changed).toBe(1);
  expect((await pruneRunEventsOnce(later, pass)).changed).toBe(1);
  await later.close();

  const gone = { code: 'run_deleted', status: 410, data: { runId: first.runId, archiveKey: null } };
  for (const path of ['', '/result', '/events', '/events/stream', '/commands', '/output'])
    expect((await api.call('GET', `/v1/runs/${first.runId}${path}`)).body).toMatchObject(gone);
  expect((await api.call('PUT', `/v1/runs/${first.runId}`, { body: { projectId: 'p', backendProfile: 'shell' } })).body).toMatchObject(
    gone,
  );
  const pruned = { code: 'events_pruned', status: 410, data: { runId: second.run.id, firstSeq: expect.any(Number) } };
  for (const path of ['/result', '/events', '/events/stream', '/output'])
    expect((await api.call('GET', `/v1/runs/${second.run.id}${path}`)).body).toMatchObject(pruned);
  await expect(client.followRun(second.run.id).next()).rejects.toMatchObject({ code: 'events_pruned', status: 410 });
  const { eventsPrunedAt, lastEventSeq } = await client.getRun(second.run.id);
  expect(eventsPrunedAt).not.toBeNull();
  const rest = [];
  for await (const event of client.followRun(second.run.id, { after: lastEventSeq - 1 })) rest.push(event.payload['phase']);
  expect(rest).toEqual(['retention-events-pruned']);
  expect(await client.getSession(first.sessionId)).toMatchObject({ lastRunId: second.run.id });

  await waitForHorizon(api.db);
  const { events } = await client.readFeed({ limit: 200 });
  expect(events.filter(({ runId }) => runId === first.runId).at(-1)?.data).toMatchObject({ phase: 'retention-deleted' });
});
