import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { createCommand, createRuns } from './index';
import { aClaimedTurn, makeTenants, TENANT } from './testing';

const store = useDatabase();
beforeAll(() => makeTenants(store.db));

test('a second turn of an open run may ask for a runner of its own', async () => {
  const { run, command, epoch } = await aClaimedTurn(store.db);
  const key = { tenantId: TENANT, runId: run.id };
  await createRuns(store.db).finishCommand({ ...key, epoch, commandId: command.id, outcome: { terminalStatus: 'completed' } });

  const second = { type: 'turn', payload: { text: 'more' }, dispatch: {} };
  const created = await inTransaction(store.db, (tx) => createCommand(tx, { ...key, command: second, idempotencyKey: 'second' }));

  expect(created.intent?.state).toBe('pending');
});
