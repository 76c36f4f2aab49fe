import { InvalidCursor, InvalidRequest, type CreateRun, type ListRuns, type RunListItem } from '@runplane/contracts';
import { inTransaction, sql, type Db, type Sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { cancelRun } from './cancel-run';
import { createRun } from './create-run';
import { finishRun } from './finish-run';
import { listRuns } from './list-runs';
import { findRunsPage, walkRunsPage, type RunPageQuery } from './run-list.sql';
import { indexPattern, searchPattern } from './run-search';
import { aClaimedRun, aClaimedTurn, makeTenants, TENANT } from './testing';

// Rows by hand stand for what a store has after a while; that operations keep the invariants is other specs' business.
const t = useDatabase({ checkInvariants: false });
const tenantId = TENANT;

const write = (statement: Sql) => t.db.sql.query(statement);
const list = (input: ListRuns & { tenantId?: string } = {}) => listRuns(t.db, { tenantId, ...input });
const idsOf = (runs: readonly { id: string }[]) => runs.map(({ id }) => id);

async function make(id: string, run: Partial<CreateRun> = {}, tenant = tenantId): Promise<void> {
  await inTransaction(t.db, (tx) => createRun(tx, { tenantId: tenant, runId: id, run: { projectId: 'p', backendProfile: 'b', ...run } }));
}

/** All pages of a list. */
async function pages(input: ListRuns): Promise<RunListItem[][]> {
  const found: RunListItem[][] = [];
  for (let cursor: string | undefined; found.length < 100;) {
    const page = await list({ ...input, cursor });
    found.push(page.runs);
    if (page.cursor === null) return found;
    cursor = page.cursor;
  }
  throw new Error('no end after 100 pages');
}

beforeEach(async () => {
  await makeTenants(t.db, 'other');
  await write(sql`DELETE FROM runplane.runs`);
  await write(sql`DELETE FROM runplane.run_events`);
});

/** Twelve runs of four projects in three states; two changes a millisecond. */
async function twelve(): Promise<void> {
  for (let i = 0; i < 12; i += 1) {
    await make(`r${String(i).padStart(2, '0')}`, {
      projectId: `p${i % 4}`,
      backendProfile: `b${i % 2}`,
      providerId: `d${i % 3}`,
      workspaceRef: i % 2 === 0 ? { path: `w/${i % 4}` } : {},
      ...(i % 4 === 0 ? { sessionRef: { sessionId: 's1' } } : {}),
    });
  }
  await write(sql`UPDATE runplane.runs SET updated_at = '2026-01-01T00:00:00.000Z'::timestamptz + (substr(id, 2)::int / 2) * interval '1 ms',
    status = (ARRAY['pending', 'claimed', 'completed'])[1 + substr(id, 2)::int % 3]::runplane.run_state, claimed_by = CASE WHEN substr(id, 2)::int % 3 = 1 THEN 'x' END,
    claim_epoch = CASE WHEN substr(id, 2)::int % 3 = 1 THEN 1 ELSE 0 END, finished_at = CASE WHEN substr(id, 2)::int % 3 = 2 THEN runplane.app_now() END`);
}

describe('orders and filters', () => {
  beforeEach(twelve);

  const updated = (row: RunListItem): string => `${row.updatedAt} ${row.id}`;
  const SORTS: readonly [NonNullable<ListRuns['sort']>, (a: RunListItem, b: RunListItem) => number][] = [
    ['updated-desc', (a, b) => (updated(a) < updated(b) ? 1 : -1)],
    ['updated-asc', (a, b) => (updated(a) < updated(b) ? -1 : 1)],
    ['status-asc', (a, b) => (a.status === b.status ? (updated(a) < updated(b) ? 1 : -1) : a.status < b.status ? -1 : 1)],
    ['id-asc', (a, b) => (a.id < b.id ? -1 : 1)],
  ];
  const FILTERS: readonly [string, ListRuns, (run: RunListItem) => boolean][] = [
    ['nothing', {}, () => true],
    ['one state', { statuses: ['claimed'] }, (run) => run.status === 'claimed'],
    ['states', { statuses: ['pending', 'completed', 'failed'] }, (run) => run.status !== 'claimed'],
    ['a project', { projectId: 'p1' }, (run) => run.projectId === 'p1'],
    ['a workspace', { workspace: 'w/2' }, (run) => run.workspaceRef['path'] === 'w/2'],
    ['a profile', { backendProfile: 'b1' }, (run) => run.backendProfile === 'b1'],
    ['a provider', { providerId: 'd2' }, (run) => run.providerId === 'd2'],
    ['a session', { sessionId: 's1' }, (run) => run.sessionId === 's1'],
    ['a time', { updatedAfter: '2026-01-01T01:00:00.003+01:00' }, (run) => run.updatedAt >= '2026-01-01T00:00:00.003Z'],
    ['a term', { search: 'R0' }, (run) => run.id.includes('r0')],
    [
      'everything together',
      { statuses: ['pending', 'claimed'], backendProfile: 'b0', updatedAfter: '2026-01-01T00:00:00.001Z', search: 'p' },
      (run) => run.status !== 'completed' && run.backendProfile === 'b0' && run.updatedAt >= '2026-01-01T00:00:00.001Z',
    ],
    ['open runs of a project', { statuses: ['pending'], projectId: 'p0' }, (run) => run.status === 'pending' && run.projectId === 'p0'],
  ];

  test.each(SORTS)('pages of %s are the filtered runs in that order, whatever the page size', async (sort, compare) => {
    const all = (await list({ limit: 100 })).runs;
    expect(all).toHaveLength(12);
    for (const [, filter, fits] of FILTERS) {
      const expected = idsOf(all.filter(fits).sort(compare));
      for (const limit of [1, 5, 12]) {
        const found = await pages({ ...filter, sort, limit });
        expect(idsOf(found.flat())).toEqual(expected);
        expect(found).toHaveLength(Math.max(1, Math.ceil(expected.length / limit)));
      }
      expect(await list({ ...filter, sort, limit: 1, total: true })).toMatchObject({ total: expected.length, totalIsExact: true });
    }
  });

  test('a page that has looked at its rows is short and says where to go on; only the end has no cursor', async () => {
    const base: RunPageQuery = {
      tenantId,
      filter: { sort: 'updated-desc', limit: 10, total: false, backendProfile: 'b1', providerId: 'd0' },
      after: undefined,
      asOf: undefined,
      limit: 10,
      scanRowsMax: 2,
      pattern: undefined,
    };
    for (const sort of ['updated-desc', 'updated-asc', 'status-asc', 'id-asc'] as const) {
      const whole = await walkRunsPage(t.db.sql, { ...base, filter: { ...base.filter, sort }, scanRowsMax: 1_000 });
      expect(whole.runs).not.toHaveLength(0);
      expect(whole.next).toBeNull();
      const found: string[] = [];
      let calls = 0;
      for (let query: RunPageQuery = { ...base, filter: { ...base.filter, sort } }; ; calls += 1) {
        const page = await walkRunsPage(t.db.sql, query);
        found.push(...idsOf(page.runs));
        if (page.next === null) break;
        query = { ...query, after: page.next, asOf: page.asOf ?? undefined };
      }
      expect(found).toEqual(idsOf(whole.runs));
      expect(calls).toBeGreaterThan(1);
    }
  });

  test('a run that moves is not told twice, one that stays is never missed', async () => {
    for (const sort of ['updated-asc', 'status-asc', 'updated-desc'] as const) {
      const first = await list({ sort, limit: 4 });
      const moved = first.runs[1]?.id ?? '';
      await write(sql`UPDATE runplane.runs SET updated_at = updated_at + interval '1 day', status = 'pending', claimed_by = NULL, finished_at = NULL
        WHERE id = ${moved}::text`);
      const found = [...first.runs];
      for (let { cursor } = first; cursor !== null;) {
        const page = await list({ sort, limit: 4, cursor });
        found.push(...page.runs);
        cursor = page.cursor;
      }
      expect(idsOf(found)).toHaveLength(12);
      expect(new Set(idsOf(found)).size).toBe(12);
    }
  });

  test('an empty page tells the total all the same; another tenant has none', async () => {
    expect(await list({ projectId: 'nobody', total: true })).toEqual({ runs: [], cursor: null, total: 0, totalIsExact: true });
    expect(await list({ tenantId: 'other' })).toEqual({ runs: [], cursor: null });
    expect(await list({ tenantId: 'other', search: 'r0' })).toEqual({ runs: [], cursor: null });
  });

  test('a cursor belongs to its filter and order; bad input is refused', async () => {
    const { cursor } = await list({ projectId: 'p1', limit: 1 });
    if (cursor === null) throw new Error('no cursor');
    const refused = [
      { limit: 1, cursor },
      { projectId: 'p2', cursor },
      { projectId: 'p1', sort: 'updated-asc', cursor },
      { projectId: 'p1', search: 'x', cursor },
      { projectId: 'p1', tenantId: 'other', cursor },
      { projectId: 'p1', cursor: `${cursor.slice(0, -4)}AAAA` },
    ] as const;
    for (const input of refused) await expect(list(input)).rejects.toThrow(InvalidCursor);
    await expect(list({ projectId: 'p1', limit: 3, cursor })).resolves.toMatchObject({ cursor: null });
    const wrong = [
      { limit: 0 },
      { limit: 101 },
      { limit: 1.5 },
      { limit: Number.NaN },
      { sort: 'newest' },
      { statuses: ['running'] },
      { updatedAfter: 'yesterday' },
      { search: 'x'.repeat(201) },
      { search: '' },
      { workspace: 'w'.repeat(1025) },
      { page: 2 },
    ];
    for (const input of wrong) await expect(list(input as ListRuns)).rejects.toThrow(InvalidRequest);
  });
});

describe('a search', () => {
  test('looks through what names a run, in any case, and takes its characters as they are', async () => {
    await make('run-A', {
      projectId: 'Alpha',
      workspaceRef: { path: '100%_done\\x' },
      traceSink: { taskId: 'TASK-77', lane: 'Überholspur' },
    });
    await make('run-B', {
      projectId: 'Beta',
      sessionRef: { sessionId: 'chat-9', metadata: { title: 'Großer Umbau' } },
      providerId: 'Prov',
    });
    const finds: readonly [string, string[]][] = [
      ['run-a', ['run-A']],
      ['ALPHA', ['run-A']],
      ['0%_d', ['run-A']],
      ['e\\X', ['run-A']],
      ['%', ['run-A']],
      ['a_d', []],
      ['task-7', ['run-A']],
      ['ÜBERHOL', ['run-A']],
      ['chat-', ['run-B']],
      ['großer umbau', ['run-B']],
      ['prov', ['run-B']],
      ['et', ['run-B']],
      ['alpha\nbeta', []],
      ['nul\0', []],
    ];
    for (const [search, ids] of finds) {
      expect([search, idsOf((await list({ search })).runs)]).toEqual([search, ids]);
      if (indexPattern(search) !== undefined && !search.includes('\0'))
        expect((await byIndex({ search }))?.runs.map(({ id }) => id)).toEqual(ids);
    }
  });

  test.each([
    ['run_01a1889e-2988-4e21-b443-823bb62eb759', '%823bb62eb759%'],
    ['Session-4711', '%4711%'],
    ['The disk_is full', '%the disk\\_is full%'],
    ['a1', undefined],
    ['会话会话', undefined],
  ])('for %s asks the index for %s', (term, pattern) => {
    expect(indexPattern(term)).toBe(pattern);
  });

  const byIndex = (filter: ListRuns & { search: string }, over: Partial<RunPageQuery> = {}) =>
    findRunsPage(t.db.sql, {
      tenantId,
      filter: { sort: 'updated-desc', limit: 10, total: true, ...filter } as RunPageQuery['filter'],
      after: undefined,
      asOf: undefined,
      limit: 10,
      scanRowsMax: 10,
      pattern: searchPattern(filter.search),
      indexPattern: indexPattern(filter.search) ?? searchPattern(filter.search),
      ...over,
    });

  test('by the index finds what the walk finds, with every filter, order and place', async () => {
    await twelve();
    const filters: readonly ListRuns[] = [{}, { projectId: 'p1' }, { statuses: ['pending'] }, { updatedAfter: '2026-01-01T00:00:00.003Z' }];
    for (const sort of ['updated-desc', 'updated-asc', 'status-asc', 'id-asc'] as const) {
      for (const filter of filters) {
        const walked = await list({ ...filter, sort, search: 'r0' });
        const found = await byIndex({ ...filter, sort, search: 'r0' }, { limit: 3 });
        expect(idsOf(found?.runs ?? [])).toEqual(idsOf(walked.runs).slice(0, 3));
        expect(found?.total).toBe(walked.runs.length);
        expect(await byIndex({ ...filter, sort, search: 'r0' }, { tenantId: 'other' })).toMatchObject({ runs: [], total: 0 });
        if (found?.next == null) continue;
        const rest = await byIndex({ ...filter, sort, search: 'r0' }, { after: found.next, asOf: found.asOf ?? undefined, limit: 20 });
        expect(idsOf(rest?.runs ?? [])).toEqual(idsOf(walked.runs).slice(3));
      }
    }
  });

  test('finds a run by its failure once it has ended', async () => {
    const { run, epoch } = await aClaimedRun(t.db);
    const outcome = { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: 'The Disk is full' } as const;
    await inTransaction(t.db, (tx) => finishRun(tx, { tenantId, runId: run.id, epoch, outcome }));
    expect(idsOf((await list({ search: 'disk IS' })).runs)).toEqual([run.id]);
    expect(idsOf((await list({ search: 'BACKEND-failed' })).runs)).toEqual([run.id]);
  });

  test('of a term that is in too many texts is no business of the index', async () => {
    await make('one');
    await manyRuns(t.db, 2_100);
    expect(await byIndex({ search: 'bulk' })).toBeUndefined();
    expect((await list({ search: 'bulk', limit: 5, total: true })).total).toBe(2_100);
    expect(idsOf((await list({ search: 'one' })).runs)).toEqual(['one']);
  });
});

async function manyRuns(db: Db, n: number): Promise<void> {
  await db.sql.query(sql`WITH r AS (
      INSERT INTO runplane.runs (tenant_id, id, project_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash, hash_version, max_attempts, on_runner_lost, partition_key, shard)
      SELECT ${tenantId}::text, 'bulk-' || i, 'p', '{}', 'd', 'b', '{}', 'h', 1, 3, 'fail', ${tenantId}::text || '/bulk-' || i, 0 FROM generate_series(1, ${n}::int) i RETURNING tenant_id, id
    ) INSERT INTO runplane.run_search (tenant_id, run_id, text) SELECT tenant_id, id, id FROM r`);
}

test('each run comes with its newest command and runner job', async () => {
  const { run, command } = await aClaimedTurn(t.db, undefined, { dispatch: {} });
  await make('bare');
  const { runs } = await list();
  expect(runs.find(({ id }) => id === 'bare')).toMatchObject({ latestCommand: null, latestRunnerJob: null });
  const seen = runs.find(({ id }) => id === run.id);
  expect(seen?.latestCommand).toMatchObject({ id: command.id, seq: 1, type: 'turn', state: 'pending', failure: null });
  expect(seen?.latestCommand).not.toHaveProperty('payload');
  await write(sql`INSERT INTO runplane.runner_jobs (tenant_id, id, run_id, command_id, launcher, job_name, created_at) VALUES
    (${tenantId}::text, 'job-2', ${run.id}::text, ${command.id}::text, 'process', 'second', '2026-01-02'), (${tenantId}::text, 'job-1', ${run.id}::text, ${command.id}::text, 'process', 'first', '2026-01-01')`);
  await inTransaction(t.db, (tx) => cancelRun(tx, { tenantId, runId: run.id, immediate: true }));
  const [ended] = (await list({ statuses: ['cancelled'] })).runs;
  expect(ended).toMatchObject({
    status: 'cancelled',
    latestCommand: { state: 'cancelled', failure: { kind: 'cancelled' } },
    latestRunnerJob: { id: 'job-2', jobName: 'second', commandId: command.id },
  });
});
