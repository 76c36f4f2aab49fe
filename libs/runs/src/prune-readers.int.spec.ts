import { ensureTenant } from '@runplane/database';
import { openClient, useDatabase } from '@runplane/database/testing';
import { listSessions, markSessionRead, markSessionsRead } from '@runplane/sessions';
import { pruneReadersOnce } from './prune-finished';
import { aTurn, makeTenants, TENANT } from './testing';

const t = useDatabase();
const tenantId = TENANT;
const sessions = ['a', 'b', 'c'];
const policy = { readersDays: 30 };

beforeAll(async () => {
  await makeTenants(t.db);
  for (const sessionId of sessions) await aTurn(t.db, sessionId);
});

const age = (readerId: string): Promise<unknown> =>
  t.db.pool.query(`UPDATE runplane.session_readers SET read_at = read_at - interval '31 days' WHERE reader_id = $1`, [readerId]);
const unread = async (readerId: string): Promise<string[]> =>
  (await listSessions(t.db, { tenantId, state: 'unread', readerId })).sessions.map(({ sessionId }) => sessionId).sort();
const rowsOf = async (readerId: string): Promise<(number | null)[]> => {
  const count = (table: string) => t.db.pool.query(`SELECT FROM runplane.${table} WHERE reader_id = $1`, [readerId]);
  return (await Promise.all(['session_readers', 'session_read_cursors'].map(count))).map(({ rowCount }) => rowCount);
};

test('a reader that has marked nothing for long goes with all its marks; one that marks now and then keeps them', async () => {
  for (const readerId of ['gone', 'here', 'all'])
    await markSessionsRead(t.db, { tenantId, readerId, ...(readerId === 'all' ? { all: true } : { sessionIds: sessions }) });
  for (const readerId of ['gone', 'here', 'all']) await age(readerId);
  await markSessionRead(t.db, { tenantId, sessionId: 'a', readerId: 'here' });

  const dry = await pruneReadersOnce(t.db, { tenantId, policy, dryRun: true });
  expect(dry).toMatchObject({ changed: 0, tenants: [{ ids: ['all', 'gone'], rows: { readers: 2 } }] });
  expect(await rowsOf('gone')).toEqual([1, 3]);
  expect(await pruneReadersOnce(t.db, { tenantId })).toMatchObject({ changed: 0 }); // nobody has said so

  expect(await pruneReadersOnce(t.db, { tenantId, policy })).toMatchObject({ changed: 2, tenants: dry.tenants });

  expect([await rowsOf('gone'), await rowsOf('all'), await rowsOf('here')]).toEqual([[0, 0], [0, 0], [1, 3]]); // prettier-ignore
  expect([await unread('gone'), await unread('all'), await unread('here')]).toEqual([sessions, sessions, []]);
  await markSessionsRead(t.db, { tenantId, readerId: 'gone', sessionIds: ['b'] });
  expect([await rowsOf('gone'), await unread('gone')]).toEqual([
    [1, 1],
    ['a', 'c'],
  ]);
});

test('who marks at that moment is passed over, and very many marks go in parts', async () => {
  await ensureTenant(t.db.sql, 'big');
  await t.db.pool.query(
    `INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, last_activity_at)
       SELECT 'big', 's' || i, 'p', 'b', 'big/s' || i, 0, now() FROM generate_series(1, 1500) i`,
  );
  await markSessionRead(t.db, { tenantId: 'big', sessionId: 's1', readerId: 'many' });
  await t.db.pool.query(
    `INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version)
       SELECT 'big', session_id, 'many', version FROM runplane.sessions WHERE tenant_id = 'big' ON CONFLICT DO NOTHING`,
  );
  await age('many');
  const prune = () => pruneReadersOnce(t.db, { tenantId: 'big', policy }).then(({ changed }) => changed);
  const marking = await openClient(t.url);
  await marking.query(`BEGIN; SELECT FROM runplane.session_readers WHERE reader_id = 'many' FOR UPDATE`);
  expect([await prune(), await rowsOf('many')]).toEqual([0, [1, 1500]]);
  await marking.query('COMMIT');
  await marking.end();

  expect([await prune(), await rowsOf('many')]).toEqual([0, [1, 499]]);
  expect([await prune(), await rowsOf('many')]).toEqual([1, [0, 0]]);
  await t.db.pool.query(`DELETE FROM runplane.sessions WHERE tenant_id = 'big'`); // they have no log
});
