import { openClient, useDatabase } from '@runplane/database/testing';
import { createRuns } from './runs';
import { pruneRunnersOnce } from './prune-finished';
import { getRunner, heartbeatRunner, listRunners, pruneRunners } from './runners';
import { claimRun } from './claim-run';
import { heartbeat } from './heartbeat';
import { aRun, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other', 'pruned'));
const register = (runnerId: string | undefined, runner = {}, tenantId = TENANT) =>
  createRuns(t.db).registerRunner({ tenantId, runnerId, runner });
const age = (id: string) =>
  t.db.pool.query(
    `UPDATE runplane.runners SET registered_at = registered_at - interval '9 days', heartbeat_at = heartbeat_at - interval '9 days' WHERE id = $1`,
    [id],
  );

test('a registration merges what is given, keeps the rest, and takes neither times nor an undefined id from the caller', async () => {
  const first = await register('r1', {
    placement: 'node-1',
    sourceCommit: 'abc',
    metadata: { pool: 'a', apiKey: 'sk-secret', placement: 'lies' },
  });
  expect(first).toMatchObject({ id: 'r1', placement: 'node-1', pool: 'a', metadata: { pool: 'a' } });
  expect(JSON.stringify(first)).not.toContain('sk-secret');
  expect(await register('r1', { placement: undefined, metadata: { zone: 'z' } })).toMatchObject({
    placement: 'node-1',
    sourceCommit: 'abc',
    pool: 'a',
    zone: 'z',
    registeredAt: first.registeredAt,
  });
  expect((await register(undefined, {})).id).toMatch(/^runner_/);
  await expect(register('r1', { registeredAt: '2020-01-01T00:00:00.000Z' })).rejects.toMatchObject({ code: 'invalid_request' });
});

test('a runner was last seen when it registered, said so, or renewed a lease; one that nobody knows is not found', async () => {
  await register('seen');
  await age('seen');
  const run = await aRun(t.db);
  const key = { tenantId: TENANT, runnerId: 'seen' };
  const { epoch } = await claimRun(t.db, { tenantId: TENANT, runId: run.id, runnerId: 'seen' });
  await heartbeat(t.db, { tenantId: TENANT, runId: run.id, epoch });
  const leased = await getRunner(t.db, key);
  expect(Date.parse(leased.lastSeenAt) - Date.parse(leased.heartbeatAt)).toBeGreaterThan(8 * 86_400_000);
  const said = await heartbeatRunner(t.db, key);
  expect(said.lastSeenAt).toBe(said.heartbeatAt);
  for (const unknown of [
    { ...key, runnerId: 'none' },
    { ...key, tenantId: 'other' },
  ]) {
    await expect(heartbeatRunner(t.db, unknown)).rejects.toMatchObject({ code: 'runner_not_found' });
    await expect(getRunner(t.db, unknown)).rejects.toMatchObject({ code: 'runner_not_found' });
  }
});

test('runners come in pages by id, within one tenant', async () => {
  for (const id of ['p1', 'p2', 'p3']) await register(id, { backendProfile: 'paged' }, 'other');
  const filter = { tenantId: 'other', backendProfile: 'paged' };
  const first = await listRunners(t.db, { ...filter, limit: 2 });
  const second = await listRunners(t.db, { ...filter, limit: 2, cursor: first.cursor ?? '' });
  expect([...first.runners, ...second.runners].map(({ id }) => id)).toEqual(['p1', 'p2', 'p3']);
  expect(second.cursor).toBeNull();
  await expect(listRunners(t.db, { ...filter, tenantId: TENANT, cursor: first.cursor ?? '' })).rejects.toMatchObject({
    code: 'invalid_cursor',
  });
  await expect(listRunners(t.db, { ...filter, limit: 201 })).rejects.toMatchObject({ code: 'invalid_request' });
});

test('silent runners are removed, but none that holds a lease, works for an open run, or speaks up at that moment', async () => {
  const tenantId = 'pruned';
  const run = await createRuns(t.db).createRun({ tenantId, run: { projectId: 'p', backendProfile: 'b' } });
  const held = await createRuns(t.db).createRun({ tenantId, run: { projectId: 'p', backendProfile: 'b' } });
  for (const [id, runner] of [
    ['silent', {}],
    ['open', { runId: run.run.id }],
    ['leased', {}],
    ['speaks', {}],
    ['young', {}],
  ] as const) {
    await register(id, runner, tenantId);
    if (id !== 'young') await age(id);
  }
  await claimRun(t.db, { tenantId, runId: held.run.id, runnerId: 'leased' });
  const dry = await pruneRunnersOnce(t.db, { tenantId, policy: { runnersDays: 7 }, dryRun: true });
  expect(dry).toMatchObject({ changed: 0, tenants: [{ ids: ['silent', 'speaks'], rows: { runners: 2 } }] });
  expect((await listRunners(t.db, { tenantId })).runners).toHaveLength(5);
  const speaking = await openClient(t.url);
  await speaking.query('BEGIN');
  await speaking.query(`UPDATE runplane.runners SET heartbeat_at = runplane.app_now() WHERE id = 'speaks'`);
  const prune = () => pruneRunners(t.db, { tenantId, silentMs: 7 * 86_400_000 });
  expect(await prune()).toEqual({ changed: 1 });
  await speaking.query('COMMIT');
  await speaking.end();
  expect(await prune()).toEqual({ changed: 0 });
  expect((await listRunners(t.db, { tenantId })).runners.map(({ id }) => id)).toEqual(['leased', 'open', 'speaks', 'young']);
});
