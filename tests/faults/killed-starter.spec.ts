import type { ChildProcess } from 'node:child_process';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { createRuns, claimRun, listRuns } from '@runplane/runs';
import { aRunner, makeTenants, newTurn, TENANT } from '@runplane/runs/testing';
import { getSession, getSubmission } from '@runplane/sessions';
import { startServed } from '../support/served';
import { until } from '../support/until';

// The process that starts a queued turn is killed with SIGKILL, behind its claim and in the middle of the admission: one run for each turn, in order.

const t = useDatabase();
const tenantId = TENANT;
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

const serve = () => startServed({ DATABASE_URL: t.url, RUNPLANE_LOG_LEVEL: 'silent' }, children);
const enqueue = (sessionId: string, key: string) =>
  createRuns(t.db).admitTurn({ tenantId, sessionId, idempotencyKey: key, turn: { ...newTurn(key), busyPolicy: 'enqueue' } });

/** Ends the open turn of a session, once it has one, and says which run it was. */
async function finishNext(sessionId: string): Promise<string> {
  const runId = await until('a turn has started', async () => (await getSession(t.db, { tenantId, sessionId })).activeRunId ?? undefined);
  const { epoch } = await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
  await createRuns(t.db).finishRun({ tenantId, runId, epoch, outcome: { terminalStatus: 'completed' } });
  return runId;
}

test.each([
  ['behind its claim', 'sessions'],
  ['between the admission and the end of the submission', 'session_heads'],
])('killed %s, it leaves one run for each turn, in the order of the calls', async (_, table) => {
  await makeTenants(t.db);
  const sessionId = `killed-at-${table}`;
  const open = await createRuns(t.db).admitTurn({ tenantId, sessionId, idempotencyKey: 'open', turn: newTurn('open') });
  for (const key of ['one', 'two', 'three']) await enqueue(sessionId, key);
  await finishNext(sessionId);
  const holder = await openClient(t.url); // the starter comes as far as this row
  await holder.query('BEGIN');
  await holder.query(`SELECT FROM runplane.${table} WHERE session_id = $1 FOR UPDATE`, [sessionId]);
  const first = await serve();
  await waitUntilBlocked(t.db, 1);

  first.child.kill('SIGKILL');
  await first.exit;
  await holder.query('COMMIT');
  await holder.end();
  await until('the claim of the dead is all that is left', async () => {
    const { rows } = await t.db.pool.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'runplane' AND state <> 'idle' AND pid <> pg_backend_pid()`,
    );
    return rows.length === 0;
  });
  const orphan = await getSubmission(t.db, { tenantId, sessionId, operationId: 'one' });
  expect(orphan).toMatchObject({ state: 'pending', claim: { epoch: expect.any(Number) } });
  expect((await listRuns(t.db, { tenantId, sessionId })).runs.map(({ id }) => id)).toEqual([open.run.id]);
  await t.db.pool.query(`UPDATE runplane.submission_heads SET expires_at = now(), ready_at = now()`); // what time does to the claim of the dead
  await serve();
  const started = [await finishNext(sessionId), await finishNext(sessionId), await finishNext(sessionId)];

  const submissions = await Promise.all(
    ['one', 'two', 'three'].map((operationId) => getSubmission(t.db, { tenantId, sessionId, operationId })),
  );
  expect(submissions.map(({ state, runId, attempts }) => [state, runId, attempts])).toEqual([
    ['completed', started[0], orphan.attempts + 1], // of the dead one's tries some may have waited for the row too long
    ['completed', started[1], 1],
    ['completed', started[2], 1],
  ]);
  const { runs } = await listRuns(t.db, { tenantId, sessionId });
  expect(runs.map(({ id }) => id).sort()).toEqual([open.run.id, ...started].sort());
});
