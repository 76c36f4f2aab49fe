import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { createCommand, createRuns, registerRunner } from './index';
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

test.each(['steer', 'turn'])('a key that a command of another type has is refused for a %s', async (type) => {
  const { run, command, epoch } = await aClaimedTurn(store.db);
  const key = { tenantId: TENANT, runId: run.id };
  const { createCommand: create, finishCommand } = createRuns(store.db);
  const payload = { text: 'x' };
  await create({ ...key, command: { type: 'note', payload }, idempotencyKey: 'taken' });
  if (type === 'turn') await finishCommand({ ...key, epoch, commandId: command.id, outcome: { terminalStatus: 'completed' } });

  const refused = create({ ...key, command: { type, payload }, idempotencyKey: 'taken' });

  await expect(refused).rejects.toMatchObject({ code: 'idempotency_conflict' });
});

test('the metadata of a runner does not grow without end by being registered again', async () => {
  const register = (name: string) =>
    inTransaction(store.db, (tx) =>
      registerRunner(tx, { tenantId: TENANT, runnerId: 'grows', runner: { metadata: { [name]: 'x'.repeat(40_000) } } }),
    );
  await register('a');

  await expect(register('b')).rejects.toMatchObject({ code: 'payload_too_large' });
  expect(Object.keys((await register('a')).metadata)).toEqual(['a']);
});
