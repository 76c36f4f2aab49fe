import { createRun, heartbeat } from '@runplane/runs';
import { inTransaction, openDb, sql, type Db } from '@runplane/database';
import { assertNothingOpen, openClient, startTcpProxy, useDatabase, type TcpProxy } from '@runplane/database/testing';
import { aClaimedRun, makeTenants, newRun, TENANT } from '@runplane/runs/testing';
import { acquireSessionLease, createSessions, renewSessionLease } from '@runplane/sessions';
import { until } from '../support/until';

const database = useDatabase();
beforeAll(() => makeTenants(database.db));

describe('a pool of two connections', () => {
  let proxy: TcpProxy;
  let db: Db;
  beforeEach(async () => {
    proxy = await startTcpProxy(database.url);
    db = await openDb({ url: proxy.through(database.url), poolMax: 2, applicationName: 'small', onError: () => undefined });
  });
  afterEach(async () => {
    await db.close();
    await proxy.close();
  });

  test('that are both taken for long lets heartbeats and renewals of session leases through', async () => {
    const { run, epoch } = await aClaimedRun(db);
    await createSessions(db).createSession({ tenantId: TENANT, header: { id: 's' } });
    const lease = await acquireSessionLease(db, { tenantId: TENANT, sessionId: 's', owner: 'w' });
    const slow = Promise.allSettled([1, 2].map(() => db.sql.query(sql`SELECT 1 AS one FROM pg_sleep(14)`)));
    await until('both connections are taken', () => db.pool.totalCount === 2 && db.pool.idleCount === 0);

    for (let beat = 1; beat <= 5; beat += 1) {
      await heartbeat(db, { tenantId: TENANT, runId: run.id, epoch });
      await renewSessionLease(db, { tenantId: TENANT, sessionId: 's', owner: 'w', epoch: lease.epoch });
    }

    expect(db.pool.idleCount).toBe(0);
    await database.db.pool.query(
      `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'small' AND query LIKE '%pg_sleep(14)'`,
    );
    await slow;
  });

  test('whose BEGINs come too late keeps none of them: no connection stays in a transaction, and what is written next is there for all', async () => {
    const runIds = Array.from({ length: 6 }, (_, i) => `late-begin-${i}`);
    const create = (runId: string, maxWaitMs: number) =>
      inTransaction(db, (tx) => createRun(tx, { tenantId: TENANT, runId, run: newRun() }), { maxWaitMs });

    proxy.judge((bytes) => (bytes.includes('BEGIN') ? 'hold' : 'forward'));
    const refused = await Promise.allSettled(runIds.map((runId) => create(runId, 200)));
    proxy.judge(() => 'forward');
    proxy.release();

    expect(refused.map((each) => (each.status === 'rejected' ? (each.reason as { code: string }).code : 'done'))).toEqual(
      runIds.map(() => 'pool_timeout'),
    );
    const observer = await openClient(database.url);
    await assertNothingOpen(observer);
    for (let write = 1; write <= 6; write += 1) {
      await db.sql.query(sql`INSERT INTO runplane.tenants (id) VALUES (${`after-${write}`}::text)`);
      const { rowCount } = await observer.query('SELECT FROM runplane.tenants WHERE id = $1', [`after-${write}`]);
      expect(rowCount).toBe(1);
    }
    await Promise.all(runIds.map((runId) => create(runId, 10_000)));
    await assertNothingOpen(observer);
    await observer.end();
    expect(db.pool.totalCount).toBeLessThanOrEqual(2);
  });
});
