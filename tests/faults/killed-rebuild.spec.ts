import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { newId } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { openClient, useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { appendAsServer, createSessions, getSessionRebuild, rebuildStaleOnce } from '@runplane/sessions';
import { until } from '../support/until';

// The command line is killed with SIGKILL in the middle of a rebuild: nothing is seen of it, and the next one goes on where it was.

const t = useDatabase();
const CLI = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/cli.js');

const runplane = (...args: string[]): ChildProcess =>
  spawn(process.execPath, [CLI, '--database-url', t.url, ...args], { stdio: ['ignore', 'ignore', 'inherit'] });

test('killed in the middle, a rebuild shows nothing; the next goes on from there, and no note is appended twice', async () => {
  await makeTenants(t.db);
  const key = { tenantId: TENANT, sessionId: newId('session') };
  await createSessions(t.db).createSession({ tenantId: TENANT, header: { id: key.sessionId } });
  const notes = (n: number) =>
    Array.from({ length: 400 }, (_, i) => ({ type: 'context/note-appended', data: { path: 'log', text: `${n * 400 + i},` } }));
  for (let n = 0; n < 5; n += 1) await inTransaction(t.db, (tx) => appendAsServer(tx, key, { events: notes(n) }));
  const plan = async (): Promise<unknown> =>
    (
      await t.db.pool.query(`SELECT content FROM runplane.context_notes WHERE tenant_id = $1 AND session_id = $2`, [
        key.tenantId,
        key.sessionId,
      ])
    ).rows;
  const right = await plan();
  await t.db.pool.query(`UPDATE runplane.context_notes SET content = 'wrong' WHERE session_id = $1`, [key.sessionId]);
  await t.db.pool.query(`UPDATE runplane.session_heads SET views_version = 0 WHERE session_id = $1`, [key.sessionId]);

  const holder = await openClient(t.url); // it can fold, and not switch
  await holder.query('BEGIN');
  await holder.query('SELECT FROM runplane.session_heads WHERE session_id = $1 FOR NO KEY UPDATE', [key.sessionId]);
  const first = runplane('sessions', 'rebuild', key.sessionId, '--tenant', TENANT);
  await until('the rebuild has begun', async () => (await getSessionRebuild(t.db, key)).throughSequence > 0);
  first.kill('SIGKILL');
  await once(first, 'exit');
  await holder.end();
  const killed = await getSessionRebuild(t.db, key);

  expect(killed).toMatchObject({ state: 'running', stale: true });
  expect(await plan()).toEqual([{ content: 'wrong' }]);
  await t.db.pool.query(`UPDATE runplane.session_rebuilds SET expires_at = now(), ready_at = now()`); // what time does to the lease of the dead
  const rebuilt: number[] = [];
  await rebuildStaleOnce(t.db, { owner: 'next', onRebuilt: ({ events }) => rebuilt.push(events) });

  expect(rebuilt).toEqual([1_999 - killed.throughSequence]);
  expect(await plan()).toEqual(right);
  expect(await getSessionRebuild(t.db, key)).toMatchObject({ state: 'completed', stale: false });
});
