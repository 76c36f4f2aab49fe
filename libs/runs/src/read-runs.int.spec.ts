import { ensureTenant, inTransaction, type Sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { cancelCommand } from './cancel-command';
import { createCommand } from './create-command';
import { listCancelRequests } from './list-cancel-requests';
import { getCommand, getDispatchIntent, getRun, listCommands } from './read-runs';
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

test('cancel requests of a run come page by page, none twice, however many there are', async () => {
  const { run } = await aClaimedTurn(t.db);
  await t.db.pool.query(
    `INSERT INTO runplane.cancel_requests (tenant_id, id, target_kind, target_id, run_id, reason, epoch, stage, created_at)
       SELECT $1, 'cancel_' || n, 'run', $2, $2, 'x', n, 'terminalized', now() + n / 10 * interval '1 ms' FROM generate_series(1, 205) n`,
    [tenantId, run.id],
  );
  const ids: string[] = [];
  let cursor: string | null | undefined;
  do {
    const page = await listCancelRequests(t.db, { tenantId, runId: run.id, limit: 100, cursor: cursor ?? undefined });
    ids.push(...page.requests.map(({ id }) => id));
    cursor = page.cursor;
  } while (cursor !== null);
  expect([ids.length, new Set(ids).size]).toEqual([205, 205]);
  const { cursor: first } = await listCancelRequests(t.db, { tenantId, runId: run.id, limit: 1 });
  const other = await aClaimedTurn(t.db);
  const foreign = listCancelRequests(t.db, { tenantId, runId: other.run.id, cursor: first ?? '' });
  await expect(foreign).rejects.toMatchObject({ code: 'invalid_cursor' });
  await t.db.pool.query('DELETE FROM runplane.cancel_requests WHERE run_id = $1', [run.id]); // no log tells of them
});

test('whether a run or command is there, and what lies under it, is read in one statement: what goes meanwhile is never an empty list', async () => {
  const { run, command } = await aTurn(t.db);
  const key = { tenantId, runId: run.id, commandId: command.id };
  for (const read of [listCommands, listCancelRequests, getDispatchIntent]) {
    let statements = 0;
    const query = (statement: Sql) => ((statements += 1), t.db.sql.query(statement));
    await read({ ...t.db, sql: { query } }, key);
    expect([read.name, statements]).toEqual([read.name, 1]);
  }
});

test('what belongs to another tenant is not found by any read', async () => {
  await ensureTenant(t.db.sql, 'other');
  const { run, command } = await aTurn(t.db);
  const other = { tenantId: 'other', runId: run.id, commandId: command.id };
  for (const read of [getRun, listCommands, listCancelRequests])
    await expect(read(t.db, other)).rejects.toMatchObject({ code: 'run_not_found' });
  for (const read of [getCommand, getDispatchIntent]) await expect(read(t.db, other)).rejects.toMatchObject({ code: 'command_not_found' });
});
