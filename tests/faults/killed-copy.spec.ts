import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { inTransaction } from '@runplane/database';
import { openClient, useDatabase } from '@runplane/database/testing';
import { eraseDeletedOnce } from '@runplane/runs';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import {
  appendAsServer,
  createSessions,
  forkSession,
  getSessionLog,
  listContextNotes,
  listSessionLogs,
  rebuildSession,
} from '@runplane/sessions';
import { until } from '../support/until';

// A copy that ends in its middle, with its process or with its connection: nobody ever sees it, nothing of it stays, and the repeat is whole.

const t = useDatabase();
const tenantId = TENANT;
const CLI = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/cli.js');

beforeAll(async () => {
  await makeTenants(t.db);
  await createSessions(t.db).createSession({ tenantId, header: { id: 'source' } });
  for (let n = 0; n < 3; n += 1) {
    const events = Array.from({ length: 400 }, (_, i) => ({
      type: 'context/note-appended',
      data: { path: 'log', text: `${n * 400 + i},` },
    }));
    await inTransaction(t.db, (tx) => appendAsServer(tx, { tenantId, sessionId: 'source' }, { events }));
  }
  // The second of three batches waits for whoever holds the lock.
  await t.db.pool.query(`
    CREATE FUNCTION public.wait_in_the_middle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(88); RETURN NEW; END';
    CREATE TRIGGER wait_in_the_middle BEFORE INSERT ON runplane.session_events FOR EACH ROW
      WHEN (NEW.session_id LIKE 'copy%' AND NEW.sequence = 700) EXECUTE FUNCTION public.wait_in_the_middle()`);
});

/** Begins a copy and stops it in its middle by `end`. */
async function inTheMiddle<T>(begin: () => T, end: (begun: T, backend: number) => Promise<unknown>): Promise<void> {
  const holder = await openClient(t.url);
  await holder.query('SELECT pg_advisory_lock(88)');
  try {
    const begun = begin();
    const waiting = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`;
    const look = async () => (await t.db.pool.query<{ pid: number }>(waiting)).rows[0]?.pid;
    await end(begun, await until('the copy has come to its middle', look, 45_000)); // a process may take long to start
  } finally {
    await holder.end();
  }
}
const countOf = async (table: string, sessionId: string) =>
  (await t.db.pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM runplane.${table} WHERE session_id = $1`, [sessionId])).rows[0]?.n;
const fork = (newSessionId: string) => forkSession(t.db, { tenantId, sessionId: 'source', newSessionId });

async function isWhole(sessionId: string): Promise<void> {
  const notes = async (id: string) => (await listContextNotes(t.db, { tenantId, sessionId: id })).notes;
  expect(await notes(sessionId)).toEqual(await notes('source'));
  expect(await rebuildSession(t.db, { tenantId, sessionId }, { owner: 'look' })).toMatchObject({ changedRows: 0 });
}

test('with its process: nobody sees what is there, the background removes it, and then its id is free', async () => {
  const copy = { tenantId, sessionId: 'copy-1' };
  const args = [CLI, '--database-url', t.url, 'sessions', 'fork', 'source', 'copy-1', '--tenant', TENANT];
  await inTheMiddle(
    () => spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] }),
    async (child) => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  );

  expect(await countOf('session_events', 'copy-1')).toBe(500); // one batch
  await expect(getSessionLog(t.db, copy)).rejects.toMatchObject({ code: 'session_not_found' });
  expect((await listSessionLogs(t.db, { tenantId })).sessions.map(({ sessionId }) => sessionId)).toEqual(['source']);
  await expect(fork('copy-1')).rejects.toMatchObject({ code: 'session_exists' }); // whoever copies may still be there
  expect(await eraseDeletedOnce(t.db)).toMatchObject({ changed: 0 });
  await fork('copy-2');
  await isWhole('copy-2');

  for (const table of ['sessions', 'session_heads'])
    await t.db.pool.query(`UPDATE runplane.${table} SET deleted_at = deleted_at - interval '2 hours' WHERE session_id = 'copy-1'`);
  expect(await eraseDeletedOnce(t.db)).toMatchObject({ changed: 1, failed: 0 });
  for (const table of ['session_events', 'sessions', 'session_heads', 'session_tombstones']) expect(await countOf(table, 'copy-1')).toBe(0);
  await fork('copy-1');
  await isWhole('copy-1');
});

test('with its connection: it removes what it has made, says that it may be repeated, and the repeat is whole', async () => {
  await inTheMiddle(
    () => expect(fork('copy-3')).rejects.toMatchObject({ retryable: true }),
    async (refused, backend) => {
      await t.db.pool.query('SELECT pg_terminate_backend($1)', [backend]);
      await refused;
    },
  );

  for (const table of ['session_events', 'sessions', 'session_heads', 'session_tombstones']) expect(await countOf(table, 'copy-3')).toBe(0);
  await fork('copy-3');
  await isWhole('copy-3');
});
