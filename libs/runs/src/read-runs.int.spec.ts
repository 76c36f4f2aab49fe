import { ensureTenant, inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { cancelCommand } from './cancel-command';
import { createCommand } from './create-command';
import { getCommand, getDispatchIntent, getRun, listCancelRequests, listCommands } from './read-runs';
import { aClaimedTurn, aTurn, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db));
const tenantId = TENANT;

test('commands of a run are listed by number behind a place, and each is read by its id', async () => {
  const { run, command } = await aTurn(t.db, undefined, { dispatch: null });
  const made = [command];
  for (const type of ['note', 'memo']) {
    const { command: next } = await inTransaction(t.db, (tx) =>
      createCommand(tx, { tenantId, runId: run.id, command: { type, payload: { type } } }),
    );
    made.push(next);
  }
  const list = (page = {}) => listCommands(t.db, { tenantId, runId: run.id, ...page }).then(({ commands }) => commands.map(({ id }) => id));

  expect(await list()).toEqual(made.map(({ id }) => id));
  expect(await list({ afterSeq: 1, limit: 1 })).toEqual([made[1]?.id]);
  expect(await list({ afterSeq: 3 })).toEqual([]);
  expect(await getCommand(t.db, { tenantId, commandId: command.id })).toEqual(command);
  await expect(listCommands(t.db, { tenantId, runId: 'run_none' })).rejects.toMatchObject({ code: 'run_not_found' });
});

test('the dispatch intent of a command is its newest, or null where nobody was to be launched', async () => {
  const dispatched = await aTurn(t.db, undefined, { dispatch: { input: { image: 'x' } } });
  const alone = await aTurn(t.db, undefined, { dispatch: null });
  expect(await getDispatchIntent(t.db, { tenantId, commandId: dispatched.command.id })).toMatchObject({
    commandId: dispatched.command.id,
    state: 'pending',
    generation: 1,
    input: { image: 'x' },
  });
  expect(await getDispatchIntent(t.db, { tenantId, commandId: alone.command.id })).toBeNull();
});

test('cancel requests of a run tell who asked, why, and how far it has come', async () => {
  const { run, command } = await aClaimedTurn(t.db);
  await inTransaction(t.db, (tx) => cancelCommand(tx, { tenantId, commandId: command.id, reason: 'enough', requestedBy: 'key_1' }));
  expect(await listCancelRequests(t.db, { tenantId, runId: run.id })).toMatchObject({
    requests: [{ targetKind: 'command', targetId: command.id, reason: 'enough', requestedBy: 'key_1', stage: 'persisted' }],
  });
});

test('what belongs to another tenant is not found by any read', async () => {
  await ensureTenant(t.db.sql, 'other');
  const { run, command } = await aTurn(t.db);
  const other = { tenantId: 'other', runId: run.id, commandId: command.id };
  for (const read of [getRun, listCommands, listCancelRequests])
    await expect(read(t.db, other)).rejects.toMatchObject({ code: 'run_not_found' });
  for (const read of [getCommand, getDispatchIntent]) await expect(read(t.db, other)).rejects.toMatchObject({ code: 'command_not_found' });
});
