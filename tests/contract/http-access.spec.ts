import { SCOPES, type Scope } from '@runplane/contracts';
import { createApiKey, revokeApiKey } from '@runplane/api';
import { callSample, makeWorld, methodOf, pathOf, ROUTE_SAMPLES, sampleOf, v1Routes, type World } from '../support/route-samples';
import { rowsOfTenant } from '../support/rows';
import { parseFrames } from '../support/sse-client';
import { OTHER_TENANT, TENANT, useApi } from '../support/test-api';
import { until } from '../support/until';

const api = useApi();
let world: World;

/** What a process remembers about a key it forgets by its own clock, which goes on by so much. */
let aheadMs = 0;
const now = performance.now.bind(performance);
beforeAll(() => void jest.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs));
const forget = () => void (aheadMs += 3_100);

const routes = Object.keys(ROUTE_SAMPLES);
const scopesOf = (route: string): readonly Scope[] => {
  const entry = api.app.routeTable.find(({ method, url }) => `${method} ${url}` === route);
  return entry === undefined || entry.access === 'public' ? [] : entry.access;
};

/** `admin` opens what is its tenant's. */
const openingScopes = (route: string): readonly Scope[] => {
  const scopes = scopesOf(route);
  return scopes.includes('operator') ? scopes : [...scopes, 'admin'];
};

describe('access', () => {
  beforeAll(async () => {
    world = await makeWorld(api); // refused calls leave it as it is
  });

  test('every route under /v1 has a sample, a schema and at least one scope; nothing but service routes is public', () => {
    const paths = Object.entries((api.app.swagger() as { paths: Record<string, Record<string, unknown>> }).paths);
    const described = paths.flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`),
    );

    expect(v1Routes(api).sort()).toEqual([...routes].sort());
    for (const route of routes) {
      expect(described).toContain(route);
      expect(scopesOf(route).length).toBeGreaterThan(0);
    }
    const open = api.app.routeTable.filter(({ access }) => access === 'public').map(({ url }) => url);
    expect(open.every((url) => /^\/(docs(\/.*)?|healthz|readyz|metrics|openapi\.json)$/.test(url))).toBe(true);
  });

  test('a route that does not say who may call it stops the start', () => {
    expect(() => api.app.get('/v1/forgotten', async () => 'secret')).toThrow();
  });

  test('no route is open without a valid key', async () => {
    for (const route of routes) {
      for (const headers of [
        {},
        { authorization: 'Bearer nonsense' },
        { authorization: `Bearer rp_${'0'.repeat(32)}_${'A'.repeat(43)}` },
      ]) {
        const answer = await api.call(methodOf(route), pathOf(route, world), { key: '', headers });
        expect([route, answer.status, answer.body.code]).toEqual([route, 401, 'unauthenticated']);
        expect(answer.headers['www-authenticate']).toBe('Bearer');
      }
    }
  });

  test('no route is open for a key with every scope but its own', async () => {
    for (const route of routes) {
      const others = SCOPES.filter((scope) => !openingScopes(route).includes(scope));
      const answer = await callSample(api, route, world, await api.makeKey(others));
      expect([route, answer.status, answer.body.code]).toEqual([route, 403, 'forbidden']);
      expect(scopesOf(route)).toContain(answer.body.data.scope);
    }
  });

  // A stream of one's own tenant has no end; http-feed.spec.ts looks at what it sends.
  const answering = routes.filter((route) => sampleOf(route).answersAtOnce !== false || sampleOf(route).foreign !== 'own');
  test.each(['GET', 'POST', 'PUT', 'PATCH', 'DELETE'])('no %s shows or changes anything of another tenant', async (method) => {
    let own = await makeWorld(api);
    const key = await api.makeKey([...SCOPES], OTHER_TENANT);
    for (const route of answering.filter((each) => methodOf(each) === method)) {
      const { foreign } = sampleOf(route);
      const before = await rowsOfTenant(api.db, TENANT);

      const answer = await callSample(api, route, own, key);

      if (foreign === 404) expect([route, answer.status, answer.body.code]).toEqual([route, 404, expect.stringMatching(/_not_found$/)]);
      else if (foreign === 409) expect([route, answer.status, answer.body.code]).toEqual([route, 409, 'reservation_lost']);
      else expect([route, answer.status < 300, answer.text.includes(own.commandId)]).toEqual([route, true, false]);
      expect([route, answer.text]).toEqual([route, expect.not.stringContaining(TENANT)]);
      expect([route, await rowsOfTenant(api.db, TENANT)]).toEqual([route, before]);
      if (foreign === 'own' && method !== 'GET') own = await makeWorld(api); // the other tenant may have a run of the same id now
    }
  });

  test('every route is open for each of its scopes', async () => {
    for (const route of routes.filter((each) => sampleOf(each).answersAtOnce !== false)) {
      const own = route.startsWith('GET ') ? world : await makeWorld(api); // a read leaves it as it is
      for (const scope of openingScopes(route)) {
        const answer = await callSample(api, route, own, await api.makeKey([scope]));
        expect([route, scope, answer.body?.code ?? 'ok']).toEqual([route, scope, expect.not.stringMatching(/forbidden|unauthenticated/)]);
        expect([route, scope, answer.status < 500]).toEqual([route, scope, true]);
      }
    }
  });

  test('a foreign id and an id that never was get the same answer', async () => {
    const key = await api.makeKey([...SCOPES], OTHER_TENANT);

    const foreign = await api.call('GET', `/v1/runs/${world.runId}`, { key });
    const never = await api.call('GET', '/v1/runs/never', { key });

    expect(foreign.text.replaceAll(world.runId, 'never').replace(/req_[\w-]+/, '')).toBe(never.text.replace(/req_[\w-]+/, ''));
  });

  test('what holds for all tenants is the operator’s, not an admin’s', async () => {
    const put = (key: string) => api.call('PUT', '/v1/backends/taken', { key, body: { capacity: { maxRunners: 0 } } });

    const admin = await put(await api.makeKey(['admin'], OTHER_TENANT));
    const operator = await put(await api.makeKey(['operator'], OTHER_TENANT));
    const runs = await api.call('GET', '/v1/runs', { key: await api.makeKey(['operator'], OTHER_TENANT) });

    expect([admin.status, admin.body.data]).toEqual([403, { scope: 'operator' }]);
    expect([operator.status, runs.status]).toEqual([200, 403]);
  });

  test('the tenant cannot be named in a body', async () => {
    const answer = await api.call('POST', '/v1/runs', { body: { projectId: 'p', backendProfile: 'b', tenantId: OTHER_TENANT } });

    expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request']);
  });

  test('a revoked key is closed within seconds, an expired one at once', async () => {
    const { id, key } = await createApiKey(api.db.sql, { tenantId: TENANT, name: 'r', scopes: ['runs:read'] });
    const expired = await createApiKey(api.db.sql, { tenantId: TENANT, name: 'e', scopes: ['runs:read'] });
    await api.db.pool.query(`UPDATE runplane.api_keys SET expires_at = now() - interval '1 second' WHERE id = $1`, [expired.id]);

    expect((await api.call('GET', '/v1/runs', { key })).status).toBe(200);
    expect((await api.call('GET', '/v1/runs', { key: expired.key })).status).toBe(401);
    await revokeApiKey(api.db.sql, id);
    forget();
    expect((await api.call('GET', '/v1/runs', { key })).status).toBe(401);
  });

  test('a stream that is open when its key is revoked gets nothing more', async () => {
    const { id, key } = await createApiKey(api.db.sql, { tenantId: TENANT, name: 's', scopes: ['runs:read'] });
    const own = await makeWorld(api);
    const say = () =>
      api.call('POST', `/v1/runs/${own.runId}/events`, { body: { epoch: own.epoch, events: [{ type: 'custom/later', payload: {} }] } });

    const stream = api.call('GET', `/v1/runs/${own.runId}/events/stream`, { key });
    await until('the stream waits', async () => /^runplane_waiters 1$/m.test((await api.call('GET', '/metrics')).text));
    await revokeApiKey(api.db.sql, id);
    forget();
    await say();

    const frames = parseFrames((await stream).text).frames;
    expect(frames.at(-1)).toMatchObject({ event: 'error', data: { code: 'unauthenticated' } });
    expect(frames.some(({ event }) => event === 'custom/later')).toBe(false);
  });

  test('only the hash of a key is stored', async () => {
    const { rows } = await api.db.pool.query(`SELECT to_json(k)::text AS row FROM runplane.api_keys k`);

    expect(JSON.stringify(rows)).not.toContain(api.adminKey.slice(36));
  });
});

describe('a run token', () => {
  beforeEach(async () => {
    world = await makeWorld(api);
  });

  const open = async (route: string, of: World, token: string) => (await callSample(api, route, of, token)).body?.code !== 'forbidden';

  test('opens what a runner needs of its own run, and nothing else', async () => {
    const token = await api.makeRunToken(world.runId);
    const opened: string[] = [];
    for (const route of routes.filter((each) => sampleOf(each).answersAtOnce !== false && !each.endsWith('/finish'))) {
      if (await open(route, world, token)) opened.push(route);
    }

    expect(opened.sort()).toEqual(
      [
        'GET /v1/runs/:runId',
        'GET /v1/runs/:runId/cancel-requests',
        'GET /v1/runs/:runId/commands',
        'GET /v1/runs/:runId/events',
        'GET /v1/runs/:runId/approvals/:approvalId',
        'GET /v1/runs/:runId/input-requests/:requestId',
        'GET /v1/runs/:runId/result',
        'POST /v1/runs/:runId/approvals',
        'POST /v1/runs/:runId/cancel-acknowledgements',
        'POST /v1/runs/:runId/claim',
        'POST /v1/runs/:runId/commands/:commandId/ack',
        'POST /v1/runs/:runId/events',
        'POST /v1/runs/:runId/heartbeat',
        'POST /v1/runs/:runId/input-requests',
        'POST /v1/runs/:runId/session-events',
      ].sort(),
    );
    expect((await api.call('POST', '/v1/runners', { key: token, body: { runId: world.runId } })).status).toBe(201);
  });

  test('opens no other run of the same tenant', async () => {
    const token = await api.makeRunToken(world.runId);
    const other = await makeWorld(api);

    for (const route of routes) expect([route, await open(route, other, token)]).toEqual([route, false]);
    expect((await api.call('POST', '/v1/runners', { key: token, body: { runId: other.runId } })).status).toBe(403);
  });

  test('still answers a runner’s repeated calls when the run has just ended, and no reads; later it opens nothing', async () => {
    const token = await api.makeRunToken(world.runId);
    const finish = { epoch: world.epoch, outcome: { terminalStatus: 'completed' }, commandId: world.commandId };
    const path = `/v1/runs/${world.runId}`;

    const first = await api.call('POST', `${path}/finish`, { key: token, body: finish });
    forget();
    const again = await api.call('POST', `${path}/finish`, { key: token, body: finish });
    const beat = await api.call('POST', `${path}/heartbeat`, { key: token, body: { epoch: world.epoch } });
    const append = await api.call('POST', `${path}/events`, {
      key: token,
      body: { epoch: world.epoch, events: [{ type: 'reasoning', payload: { text: '' } }] },
    });
    const read = await api.call('GET', path, { key: token });
    await api.db.pool.query(
      `UPDATE runplane.runs SET finished_at = finished_at - interval '11 minutes', updated_at = updated_at - interval '11 minutes', created_at = created_at - interval '11 minutes' WHERE id = $1`,
      [world.runId],
    );
    forget();
    const late = await api.call('POST', `${path}/heartbeat`, { key: token, body: { epoch: world.epoch } });

    expect([first.status, again.status]).toEqual([200, 200]);
    expect(again.body.status).toBe('completed');
    expect([beat.status, beat.body.stop]).toEqual([200, true]);
    expect([append.status, append.body.code]).toEqual([409, 'run_closed']);
    expect([read.status, read.body.code]).toEqual([403, 'forbidden']);
    expect(late.status).toBe(401);
  });
});
