import { inTransaction, sql } from '@runplane/database';
import { openClient, useDatabase } from '@runplane/database/testing';
import { createRun } from './create-run';
import { compactRunCountsOnce, getRunFacets } from './run-facets';
import { aClaimedRun, aRun, endLease, makeTenants, TENANT } from './testing';
import { sweepLostRunnersOnce } from './sweep';

const t = useDatabase();
const tenantId = TENANT;

const deltas = async () => Number((await t.db.pool.query('SELECT count(*) AS n FROM runplane.run_status_counts')).rows[0]?.n);

beforeAll(() => makeTenants(t.db, 'other'));

test('facets are a tenant’s own values, each once and sorted, and its runs by state', async () => {
  expect(await getRunFacets(t.db, { tenantId })).toMatchObject({
    projects: { values: [], truncated: false },
    statusCounts: { pending: 0, failed: 0 },
  });
  for (const projectId of ['b', 'a', 'b'])
    await aRun(t.db, { projectId, providerId: `${projectId}-1`, ...(projectId === 'a' ? { workspaceRef: { path: 'w' } } : {}) });
  await inTransaction(t.db, (tx) => createRun(tx, { tenantId: 'other', run: { projectId: 'foreign', backendProfile: 'x' } }));
  const { run } = await aClaimedRun(t.db, { projectId: 'c' });
  await endLease(t.db, run.id);
  await sweepLostRunnersOnce(t.db, {});

  expect(await getRunFacets(t.db, { tenantId })).toEqual({
    projects: { values: ['a', 'b', 'c'], truncated: false },
    workspaces: { values: ['w'], truncated: false },
    backends: { values: ['demo'], truncated: false },
    providers: { values: ['a-1', 'b-1', 'default'], truncated: false },
    statusCounts: { pending: 3, claimed: 0, cancelling: 0, completed: 0, failed: 1, blocked: 0, cancelled: 0 },
  });
});

test('a facet tells 200 values and that there are more', async () => {
  await t.db.sql
    .query(sql`INSERT INTO runplane.runs (tenant_id, id, project_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash, hash_version,
      max_attempts, on_runner_lost, partition_key, shard)
    SELECT 'other', 'r' || i, 'p' || lpad(i::text, 3, '0'), '{}', 'd', 'b', '{}', 'h', 1, 3, 'fail', 'other/r' || i, 0 FROM generate_series(1, 201) i`);
  const { projects, providers } = await getRunFacets(t.db, { tenantId: 'other' });
  expect(projects.truncated).toBe(true);
  expect(projects.values).toHaveLength(200);
  expect(projects.values.slice(0, 3)).toEqual(['foreign', 'p001', 'p002']);
  expect(providers).toEqual({ values: ['d', 'default'], truncated: false });
});

// The invariants after each test hold the counts against the runs.
test('counts are summed while runs come and go, by several at a time, and rows that somebody holds are left alone', async () => {
  for (let i = 0; i < 12; i += 1) await aRun(t.db);
  const before = await getRunFacets(t.db, { tenantId });
  const rowsBefore = await deltas();
  const holder = await openClient(t.url);
  try {
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.run_status_counts WHERE tenant_id = $1 ORDER BY id LIMIT 1 FOR UPDATE', [tenantId]);
    await Promise.all([
      ...[1, 2, 3].map(() => compactRunCountsOnce(t.db, { rowsMin: 2, rowsMax: 50 })),
      ...[1, 2, 3].map(() => aRun(t.db)),
      getRunFacets(t.db, { tenantId }).then(({ statusCounts }) => {
        expect(statusCounts.failed).toBe(before.statusCounts.failed);
        expect(statusCounts.pending).toBeGreaterThanOrEqual(before.statusCounts.pending ?? 0);
      }),
    ]);
  } finally {
    await holder.end();
  }
  while ((await compactRunCountsOnce(t.db, { rowsMin: 8 })).changed > 0);
  expect(await deltas()).toBeLessThan(rowsBefore);
  expect((await getRunFacets(t.db, { tenantId })).statusCounts).toEqual({
    ...before.statusCounts,
    pending: (before.statusCounts.pending ?? 0) + 3,
  });
  expect(await compactRunCountsOnce(t.db)).toEqual({ changed: 0 });
});
