import { makeWorld } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

const phasesOf = async (runId: string): Promise<{ phase?: string; source?: string }[]> => {
  const { body } = await api.call('GET', `/v1/runs/${runId}/events?limit=500`);
  return body.events.map((event: { payload: { phase?: string; source?: string } }) => event.payload);
};

test('a finish that comes after the end with another outcome is refused and leaves a record', async () => {
  const { runId, epoch } = await makeWorld(api);
  await api.call('POST', `/v1/runs/${runId}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });

  const late = await api.call('POST', `/v1/runs/${runId}/finish`, {
    body: { epoch, outcome: { terminalStatus: 'failed', failureKind: 'backend-failed' } },
  });

  expect(late).toMatchObject({ status: 409, body: { code: 'run_closed' } });
  expect(await phasesOf(runId)).toContainEqual(expect.objectContaining({ phase: 'late-write-rejected', source: 'run-status' }));
});

test('an acknowledgement under an old epoch is refused and leaves a record', async () => {
  const { runId, commandId, epoch } = await makeWorld(api);
  await api.db.pool.query(`UPDATE runplane.run_leases SET expires_at = now() - interval '1 second' WHERE run_id = $1`, [runId]);
  await api.call('POST', `/v1/runs/${runId}/claim`, { body: { runnerId: 'the-second' } });

  const stale = await api.call('POST', `/v1/runs/${runId}/commands/${commandId}/ack`, { body: { epoch } });

  expect(stale).toMatchObject({ status: 409, body: { code: 'lease_lost' } });
  expect(await phasesOf(runId)).toContainEqual(expect.objectContaining({ phase: 'stale-writer-refused', source: 'command-ack' }));
});
