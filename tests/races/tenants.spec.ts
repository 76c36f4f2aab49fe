import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { inTransaction } from '@runplane/database';
import { openClient } from '@runplane/database/testing';
import { claimQueueTasks, claimSubmissions, setLaneLimit, settleQueueTask, settleSubmissions } from '@runplane/queue';
import { aSubmission, aTask, aWorker } from '@runplane/queue/testing';
import { admitTurn, appendRunEvents, claimRun, createRuns } from '@runplane/runs';
import { aRunner, message, newTurn, TENANT } from '@runplane/runs/testing';
import { appendAsServer, createSessions } from '@runplane/sessions';
import { useRaces } from '../support/races';

// Two tenants that have chosen the same names for everything.

const t = useRaces();
let holder: Awaited<ReturnType<typeof openClient>> | undefined;
afterEach(() => holder?.end());
const root = path.resolve(__dirname, '../..');

/** A limited lane with a task, a session with a turn and one with a submission. */
async function makeWork(tenantId: string): Promise<{ runId: string }> {
  await inTransaction(t.db, (tx) => setLaneLimit(tx, { tenantId, queue: 'work', lane: 'main', maxRunning: 1 }));
  await aTask(t.db, { queue: 'work', lane: 'main' }, tenantId);
  await createSessions(t.db).createSession({ tenantId, header: { id: 'chat' } });
  await aSubmission(t.db, { tenantId, sessionId: 'chat', operationId: 'op', kind: 'work' });
  const { run } = await inTransaction(t.db, (tx) => admitTurn(tx, { tenantId, sessionId: 'turns', turn: newTurn(), idempotencyKey: 'k' }));
  return { runId: run.id };
}

test('whoever holds every row of one tenant keeps another with the same names from nothing', async () => {
  await makeWork(TENANT);
  const { runId } = await makeWork('other');
  const { rows: tables } = await t.db.pool.query<{ name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
      WHERE c.relnamespace = 'runplane'::regnamespace AND c.relkind = 'r'`,
  );
  holder = await openClient(t.url);
  await holder.query('BEGIN');
  let held = 0;
  for (const { name } of tables) {
    held += (await holder.query(`SELECT FROM ${name} WHERE tenant_id = '${TENANT}' FOR UPDATE`)).rowCount ?? 0;
  }
  await holder.query(`SELECT FROM runplane.tenants WHERE id = '${TENANT}' FOR UPDATE`);
  expect(held).toBeGreaterThan(15);

  const tenantId = 'other';
  const [task] = await claimQueueTasks(t.db, { tenantId, queue: 'work', lane: 'main', owner: aWorker() });
  const settled = await settleQueueTask(t.db, { tenantId, taskId: task?.taskId ?? '', epoch: task?.epoch ?? 0, outcome: 'completed' });
  const [submission] = await claimSubmissions(t.db, { tenantId, kind: 'work', owner: aWorker() });
  if (submission === undefined) throw new Error('the submission was not claimed');
  const ended = await settleSubmissions(t.db, {
    tenantId,
    settlements: [{ sessionId: 'chat', operationId: 'op', epoch: submission.epoch, outcome: 'completed' }],
  });
  const appended = await inTransaction(t.db, (tx) =>
    appendAsServer(tx, { tenantId, sessionId: 'chat' }, { events: [{ type: 'user/message', data: { content: 'hi' } }] }),
  );
  const { epoch } = await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
  await appendRunEvents(t.db, { tenantId, runId, epoch, events: [message('hi')] });
  const run = await createRuns(t.db).finishRun({ tenantId, runId, epoch, outcome: { terminalStatus: 'completed' } });

  await holder.query('ROLLBACK');
  expect([settled, ended, appended, run]).toMatchObject([
    { state: 'completed' },
    [{ state: 'completed' }],
    { lastSequence: 2 },
    { status: 'completed' },
  ]);
});

test('no statement takes an advisory lock but the migration’s', () => {
  const sources = ['libs', 'apps'].flatMap((kind) => readdirSync(path.join(root, kind)).map((name) => path.join(kind, name, 'src')));
  const takers: string[] = [];
  for (const folder of [...sources, 'prisma/migrations']) {
    for (const file of readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })) {
      if (!/\.(ts|sql)$/.test(file) || /\.spec\.ts$|^testing\//.test(file)) continue;
      if (/pg_(try_)?advisory/.test(readFileSync(path.join(root, folder, file), 'utf8'))) takers.push(path.join(folder, file));
    }
  }
  expect(takers).toEqual(['libs/database/src/migrate.ts']);
});
