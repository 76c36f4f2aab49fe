import { createClient, type Client } from '@runplane/client';
import type { AddressInfo } from 'node:net';
import { TENANT, OTHER_TENANT, useApi } from '../support/test-api';
import { until } from '../support/until';

// Control of sessions over HTTP, by the client.

const api = useApi();
let client: Client;
beforeAll(async () => {
  await api.app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = api.app.server.address() as AddressInfo;
  client = createClient({ url: `http://127.0.0.1:${port}`, apiKey: api.adminKey });
});

const content = { projectId: 'p', backendProfile: 'shell' };

test('a session is made, followed, listed, read, renamed and told of its storage', async () => {
  const made = await client.upsertSession('s/1', { ...content, metadata: { title: 'Mine' }, expiresAt: '2020-01-01T00:00:00Z' });
  expect(made).toMatchObject({
    created: true,
    session: { sessionId: 's/1', tenantId: TENANT, version: 1, storage: { kind: 'none', version: 0 } },
  });
  await expect(client.upsertSession('s/1', { ...content, projectId: 'q' })).rejects.toMatchObject({
    status: 409,
    code: 'session_boundary',
  });

  const start = await until('the new session is in the list of changes', async () => {
    const page = await client.listSessionChanges({ readerId: 'ann' });
    return page.sessions.length === 1 && page;
  });
  expect(start.sessions).toMatchObject([{ sessionId: 's/1', reader: { readerId: 'ann', unread: true, readVersion: null } }]);

  expect(await client.listSessions()).toEqual({ sessions: [], cursor: null }); // it never had a run
  const turn = await client.admitTurn(
    's/1',
    { run: { ...content, resourceBundleRef: { a: 1 } }, payload: { text: 'hi' }, dispatch: null },
    { idempotencyKey: 'k' },
  );
  expect(await client.listSessions({ readerId: 'ann' })).toMatchObject({ sessions: [{ title: 'Mine', executionState: 'running' }] });
  expect(await client.getSessionResourceRun('s/1')).toMatchObject({ run: { id: turn.run.id } });

  expect(await client.markSessionRead('s/1', 'ann')).toMatchObject({ sessionVersion: 2 });
  expect(await client.listSessions({ state: 'unread', readerId: 'ann' })).toEqual({ sessions: [], cursor: null });
  expect(await client.renameSession('s/1', 'Another')).toMatchObject({ changed: true, session: { title: 'Another' } });
  expect(await client.getSessionSummary('s/1', { readerId: 'ann' })).toMatchObject({ reader: { unread: true, readVersion: 2 } });
  expect(await client.markSessionsRead({ readerId: 'ann', sessionIds: ['s/1', 'none'] })).toMatchObject({ unknown: ['none'] });
  expect(await client.markSessionsRead({ readerId: 'ann', all: true })).toMatchObject({ cursors: [] });

  const { storage } = await client.refreshSessionStorage('s/1', { kind: 'pvc', name: 'claim' });
  expect((await client.listExpiredStorage()).storages).toMatchObject([{ sessionId: 's/1', name: 'claim', isBusy: true }]);
  expect(await client.markSessionStorageEvicted('s/1', { name: 'claim', storageVersion: storage.version })).toMatchObject({
    changed: true,
    session: { storage: { kind: 'evicted' } },
  });
  await expect(client.markSessionStorageEvicted('s/1', { name: 'claim', storageVersion: 9 })).rejects.toMatchObject({
    status: 409,
    code: 'storage_changed',
  });
});

test('storage that is being deleted tells when to come back', async () => {
  await client.upsertSession('s2', content);
  await client.refreshSessionStorage('s2', { kind: 'folder', name: 'f' });
  await api.db.pool.query(
    `UPDATE runplane.sessions SET storage_lease_owner = 'gc', storage_lease_expires_at = now() + interval '30 s' WHERE session_id = 's2'`,
  );
  const turn = { body: { run: content, payload: {} }, headers: { 'idempotency-key': 'k' } };
  const refused = await api.call('POST', '/v1/sessions/s2/turns', turn);
  expect(refused).toMatchObject({ status: 409, body: { code: 'storage_evicting', retryable: true } });
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(25);
});

test('lists, changes and bulk marks show and touch the tenant’s own sessions alone', async () => {
  const key = await api.makeKey(['sessions:read'], OTHER_TENANT);
  for (const path of ['/v1/sessions?state=all', '/v1/session-changes', '/v1/expired-storage']) {
    const { status, body } = await api.call('GET', path, { key });
    expect({ status, rows: (body.sessions ?? body.storages) as unknown }).toEqual({ status: 200, rows: [] });
  }
  expect((await api.call('POST', '/v1/session-reads', { key, body: { readerId: 'ann', sessionIds: ['s2'] } })).body).toMatchObject({
    cursors: [],
    unknown: ['s2'],
  });
});

test.each([
  ['GET', '/v1/sessions?state=open', undefined],
  ['GET', '/v1/sessions?state=unread', undefined],
  ['GET', '/v1/sessions?limit=201', undefined],
  ['GET', '/v1/session-changes?after=x', undefined],
  ['POST', '/v1/sessions/s2/rename', { title: ' ' }],
  ['POST', '/v1/session-reads', { readerId: 'ann' }],
  ['POST', '/v1/session-reads', { readerId: 'ann', all: false }],
  ['PUT', '/v1/sessions/s2/storage', { kind: 'folder', name: '../up' }],
  ['PUT', '/v1/sessions/s2/storage', { kind: 'evicted', name: 'f' }],
])('%s %s with %j is a bad request', async (method, path, body) => {
  expect(await api.call(method, path, { body })).toMatchObject({ status: 400 });
});
