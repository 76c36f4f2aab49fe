import { openDb } from '@runplane/database';
import { buildApp } from '@runplane/api';
import { makeWorld } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

describe('a process tells its operator', () => {
  test('that it lives and is ready, without a key', async () => {
    expect(await api.call('GET', '/healthz', { key: '' })).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(await api.call('GET', '/readyz', { key: '' })).toMatchObject({ status: 200, body: { ready: true } });
    expect((await api.call('HEAD', '/readyz', { key: '' })).status).toBe(200);
  });

  test('that it is not ready while the database is away, a migration is missing or changes are not heard', async () => {
    const db = await openDb({ url: api.url, poolMax: 2 });
    const deaf = await buildApp({ db, logger: false, migrationsDir: __dirname });
    const answer = await deaf.inject('/readyz');
    await db.close();
    const away = await deaf.inject('/readyz');
    await deaf.close();

    expect(answer.statusCode).toBe(503);
    expect(answer.json()).toMatchObject({ ready: false, checks: { database: 'ok', hub: 'the listener is not connected' } });
    expect(away.statusCode).toBe(503);
    expect(away.json().checks.database).toBe('does not answer');
  });

  test('how many sessions of the store have views of older rules, or that failed', async () => {
    await makeWorld(api);
    expect((await api.call('GET', '/v1/health')).body).toMatchObject({ ready: true, staleViews: { count: 0, isExact: true } });
    await api.db.pool.query(`UPDATE runplane.session_heads SET views_version = 0`);
    const { rows } = await api.db.pool.query<{ n: number }>(
      `SELECT count(*)::int AS n FROM runplane.session_heads WHERE deleted_at IS NULL`,
    );
    expect(rows[0]?.n).toBeGreaterThan(0);
    expect((await api.call('GET', '/v1/health')).body).toMatchObject({ ready: true, staleViews: { count: rows[0]?.n } });
  });

  test('what it does, without a tenant or an id in any label', async () => {
    const world = await makeWorld(api);
    await api.call('POST', `/v1/runs/${world.runId}/events`, {
      body: { epoch: world.epoch, events: [{ type: 'reasoning', payload: { text: 'x' } }] },
    });

    const { text, headers } = await api.call('GET', '/metrics', { key: '' });

    expect(headers['content-type']).toMatch(/^text\/plain/);
    expect(text).toContain('runplane_http_requests_total{method="POST",route="/v1/runs/:runId/events",status="201"}');
    expect(text).toMatch(/runplane_append_seconds_count [1-9]/);
    expect(text).toMatch(/runplane_coalesced_calls\{kind="append"\} [1-9]/);
    expect(text).toContain('runplane_coalesced_queue{kind="append"} 0');
    for (const name of ['waiters', 'pool_connections', 'pool_queue', 'hub_connected'])
      expect(text).toMatch(new RegExp(`^runplane_${name} \\d`, 'm'));
    expect(text).not.toContain(world.runId);
    expect(text).not.toContain('acme');
  });
});
