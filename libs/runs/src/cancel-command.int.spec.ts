import { useDatabase } from '@runplane/database/testing';
import { createRuns, listCancelRequests } from './index';
import { aClaimedTurn, makeTenants, TENANT } from './testing';

const store = useDatabase();
beforeAll(() => makeTenants(store.db));

test('a command that is cancelled again, at once, ends by the request that stands, and leaves none behind', async () => {
  const { cancelCommand, finishRun } = createRuns(store.db);
  const { run, command, epoch } = await aClaimedTurn(store.db);
  const first = await cancelCommand({ tenantId: TENANT, commandId: command.id, reason: 'please stop' });

  const second = await cancelCommand({ tenantId: TENANT, commandId: command.id, reason: 'now', immediate: true });
  await finishRun({ tenantId: TENANT, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } });

  expect(second).toMatchObject({ changed: true, command: { state: 'cancelled' }, request: { id: first.request?.id } });
  const { requests } = await listCancelRequests(store.db, { tenantId: TENANT, runId: run.id });
  expect(requests.map(({ stage }) => stage)).toEqual(['terminalized']);
});
