import { migrate, MIGRATIONS_DIR, openDb, readMigrations, type Db } from '@runplane/database';
import { assertInvariants, dropTestDatabase, openClient, testServerUrl, useDatabase } from '@runplane/database/testing';
import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type pg from 'pg';
import { appendRunEvents, createRuns, dispatchOnce, listRuns, sweepLostRunnersOnce } from './index';
import { aClaimedTurn, aRun, aTurn, endLease, makeTenants, message, newRun, TENANT } from './testing';

// A store of the first release with rows in it, and what the second migration makes of them: what the program itself would have written. The rows are
// made by the program of today and copied without the columns that the first release does not have.

const t = useDatabase();
const tenantId = TENANT;
const name = `upgrade_${randomBytes(6).toString('hex')}`;
const url = new URL(testServerUrl());
url.pathname = `/${name}`;
const opened: pg.Client[] = [];
let upgraded: Db | undefined;
let folder = '';

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'upgrade-'));
  await (await client(testServerUrl())).query(`CREATE DATABASE ${name}`);
});
afterAll(async () => {
  await upgraded?.close();
  await Promise.all(opened.map((each) => each.end()));
  await dropTestDatabase(testServerUrl(), name);
  await rm(folder, { recursive: true, force: true });
});

async function client(to: string): Promise<pg.Client> {
  const made = await openClient(to);
  opened.push(made);
  return made;
}

/** With those that others refer to first. */
const TABLES = [
  ...['tenants', 'sessions', 'runs', 'run_leases', 'commands', 'run_events'],
  ...['dispatch_intents', 'runner_jobs', 'cancel_requests', 'outbox_events'],
];

async function copyRows(from: pg.Client, to: pg.Client): Promise<void> {
  for (const table of TABLES) {
    const { rows: columns } = await to.query<{ names: string }>(
      `SELECT string_agg(quote_ident(column_name), ', ') AS names FROM information_schema.columns WHERE table_schema = 'runplane' AND table_name = $1`,
      [table],
    );
    const names = columns[0]?.names ?? '';
    const { rows } = await from.query<{ texts: string }>(
      `SELECT json_agg(x)::text AS texts FROM (SELECT ${names} FROM runplane.${table}) x`,
    );
    await to.query(
      `INSERT INTO runplane.${table} (${names}) OVERRIDING SYSTEM VALUE SELECT ${names} FROM json_populate_recordset(NULL::runplane.${table}, $1)`,
      [rows[0]?.texts],
    );
  }
}

/** What the second release keeps beside what the first one did. */
const DERIVED = `
  SELECT 'session ' || session_id AS what, json_build_array(last_activity_at, changed_tx, storage_kind, storage_version, summary)::text AS value FROM runplane.sessions
  UNION ALL SELECT 'run ' || id, json_build_array(workspace_path, open_tool_calls, max_duration_ms)::text FROM runplane.runs
  UNION ALL SELECT 'search ' || run_id, text FROM runplane.run_search
  UNION ALL SELECT 'count ' || status, sum(n)::text FROM runplane.run_status_counts GROUP BY status ORDER BY 1`;

async function makeRows(): Promise<{ runId: string }> {
  const runs = createRuns(t.db);
  const launch = () => Promise.resolve({ outcome: 'created' as const, jobName: 'j', result: {} });
  const toolCall = { type: 'tool_call', payload: { callId: 'a', name: 'x', arguments: {} } } as const;
  const failed = { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: 'Broken PIPE' } as const;
  await makeTenants(t.db);
  const { run, epoch } = await aClaimedTurn(t.db, 's1', { run: newRun({ workspaceRef: { path: 'Work/One' } }) });
  await appendRunEvents(t.db, { tenantId, runId: run.id, epoch, events: [toolCall, message('hi')] });
  await aTurn(t.db, 's2', { dispatch: {} });
  await dispatchOnce(t.db, { owner: 'd', launcher: { kind: 'k', launch } });
  await aTurn(t.db, 's3', { dispatch: {} });
  await aRun(t.db, {
    workspaceRef: { path: 5 },
    traceSink: { taskId: 7 },
    sessionRef: { sessionId: 's4', metadata: { title: 'A Title' } },
  });
  await aRun(t.db, { workspaceRef: { path: 'x'.repeat(1_500) }, traceSink: 'no object' });
  const ended = await aClaimedTurn(t.db, 's5');
  await runs.finishRun({ tenantId, runId: ended.run.id, epoch: ended.epoch, outcome: failed });
  const cancelling = await aClaimedTurn(t.db, 's6');
  await runs.cancelRun({ tenantId, runId: cancelling.run.id });
  return { runId: run.id };
}

test('a store of the first release goes on in the second with all its rows', async () => {
  const { runId } = await makeRows();
  const [first] = await readMigrations();
  const script = first?.name ?? '';
  await cp(path.join(MIGRATIONS_DIR, script), path.join(folder, script), { recursive: true });
  await migrate(url.toString(), { dir: folder });
  const [from, to] = [await client(t.url), await client(url.toString())];
  await copyRows(from, to);

  await migrate(url.toString());

  expect((await to.query(DERIVED)).rows).toEqual((await from.query(DERIVED)).rows);
  await assertInvariants(to);
  upgraded = await openDb({ url: url.toString() });
  expect((await listRuns(upgraded, { tenantId, search: 'broken pipe' })).runs).toMatchObject([{ status: 'failed' }]);
  await to.query(`UPDATE runplane.run_leases SET expires_at = runplane.app_now() + interval '1 hour'`); // migrations take long on a slow machine
  await endLease(upgraded, runId);
  expect(await sweepLostRunnersOnce(upgraded)).toEqual({ changed: 1, failed: 0 });
  await assertInvariants(to);
});
