import {
  contentHash,
  encodeCursor,
  matchesListState,
  SESSION_LIST_STATES,
  type SessionSummary,
  type UpsertSession,
} from '@runplane/contracts';
import { ensureTenant, inTransaction, type Tx } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import {
  confirmStorageEvicted,
  createSessions,
  getSession,
  leaseExpiredStorage,
  listGcExpiredSessions,
  listSessionChanges,
  listSessions,
  markSessionRead,
  markSessionsRead,
  releaseStorage,
  writeTurnEnded,
  writeTurnStarted,
} from './index';

// No run stands behind the ids of this file: sessions knows none.
const t = useDatabase({ checkInvariants: false });
const tenantId = 'acme';
const key = (sessionId: string) => ({ tenantId, sessionId });
const sessions = () => createSessions(t.db);
const run = <T>(work: (tx: Tx) => Promise<T>): Promise<T> => inTransaction(t.db, work);
const upsert = (sessionId: string, over: Partial<UpsertSession> = {}, tenant = tenantId) =>
  sessions().upsertSession({ tenantId: tenant, sessionId, session: { projectId: 'p1', backendProfile: 'demo', ...over } });
const startTurn = (sessionId: string) =>
  run((tx) => writeTurnStarted(tx, { ...key(sessionId), runId: `run-${sessionId}`, commandId: `cmd-${sessionId}`, title: 'a turn' }));
const endTurn = (sessionId: string) =>
  run((tx) =>
    writeTurnEnded(tx, { ...key(sessionId), runId: `run-${sessionId}`, commandId: null, terminalStatus: 'completed', failureKind: null }),
  );
const idsOf = (list: readonly SessionSummary[]) => list.map(({ sessionId }) => sessionId);

beforeAll(async () => {
  for (const id of [tenantId, 'other', 'lists', 'big', 'reader']) await ensureTenant(t.db.sql, id);
});

describe('a session made by hand', () => {
  test('is made once, then changed where it is told otherwise, and is repeated without effect', async () => {
    const content = { conversationId: 'c1', metadata: { title: 'Mine' }, summary: { n: 1 }, ttlSeconds: 60 };
    const first = await upsert('u1', content);
    expect(first).toMatchObject({
      created: true,
      changed: true,
      session: { title: 'Mine', version: 1, summary: { n: 1 }, ttlSeconds: 60 },
    });
    expect(await upsert('u1', content)).toEqual({ created: false, changed: false, session: first.session });
    expect(await upsert('u1', { conversationId: null, expiresAt: '2030-01-01T00:00:00+01:00' })).toMatchObject({
      created: false,
      changed: true,
      session: { conversationId: null, metadata: { title: 'Mine' }, ttlSeconds: null, expiresAt: '2029-12-31T23:00:00.000Z', version: 2 },
    });
  });

  test('keeps its boundary: another project or profile is refused, and another tenant has its own', async () => {
    await upsert('u2');
    await expect(upsert('u2', { projectId: 'p2' })).rejects.toMatchObject({ code: 'session_boundary', data: { field: 'projectId' } });
    await expect(upsert('u2', { backendProfile: 'x' })).rejects.toMatchObject({ code: 'session_boundary' });
    expect(await upsert('u2', { projectId: 'p2' }, 'other')).toMatchObject({ created: true });
    expect(await getSession(t.db, key('u2'))).toMatchObject({ projectId: 'p1', version: 1 });
  });

  test.each([
    [{ ttlSeconds: 60, expiresAt: '2030-01-01T00:00:00Z' }, 'invalid_request'],
    [{ summary: { text: 'x'.repeat(9_000) } }, 'payload_too_large'],
    [{ rolloutSubdir: '../up' }, 'invalid_request'],
  ])('is refused with bad input (%#)', async (over, code) => {
    await expect(upsert('u3', over)).rejects.toMatchObject({ code });
    await expect(getSession(t.db, key('u3'))).rejects.toMatchObject({ code: 'session_not_found' });
  });

  test('of a tenant that is not there is refused', async () => {
    await expect(upsert('u4', {}, 'nobody')).rejects.toMatchObject({ code: 'tenant_not_found' });
  });

  test('is renamed, and no later turn renames it; a rename is no activity', async () => {
    await upsert('n1');
    const before = await getSession(t.db, key('n1'));
    const renamed = await sessions().renameSession({ ...key('n1'), title: '  New\u0000 name ' });
    expect(renamed).toMatchObject({
      changed: true,
      session: { title: 'New\uFFFD name', version: 2, lastActivityAt: before.lastActivityAt },
    });
    expect(await sessions().renameSession({ ...key('n1'), title: 'New\uFFFD name' })).toMatchObject({
      changed: false,
      session: { version: 2 },
    });
    await startTurn('n1');
    expect(await getSession(t.db, key('n1'))).toMatchObject({ title: 'New\uFFFD name', version: 3 });
    await expect(sessions().renameSession({ ...key('n1'), title: ' ' })).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(sessions().renameSession({ tenantId: 'other', sessionId: 'n1', title: 'x' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
  });
});

describe('a list of sessions', () => {
  const of = (over: object = {}) => listSessions(t.db, { tenantId: 'lists', ...over });
  /** One of each: state, storage, with and without a run, two projects. The later ones were active later. */
  beforeAll(async () => {
    await t.db.pool
      .query(`INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, execution_state, active_run_id,
        active_command_id, last_run_id, storage_kind, storage_pvc_name, version, changed_tx, last_tx, last_activity_at)
      SELECT 'lists', 's' || to_char(i, 'FM000'), 'p' || i % 2, 'b' || i % 3, 'k', 0, (ARRAY['idle', 'running', 'terminal'])[i % 3 + 1]::runplane.session_state,
        CASE WHEN i % 3 = 1 THEN 'r' END, CASE WHEN i % 3 = 1 THEN 'c' END, CASE WHEN i % 4 > 0 THEN 'r' END,
        (ARRAY['none', 'folder', 'evicted'])[i % 5 % 3 + 1]::runplane.storage_kind, 'n', 2, i, i, '2026-01-01T00:00:00Z'::timestamptz + (i / 2) * interval '1 min'
      FROM generate_series(1, 60) i`);
    const half = Array.from({ length: 30 }, (_, i) => `s${String(i * 2 + 1).padStart(3, '0')}`);
    await markSessionsRead(t.db, { tenantId: 'lists', readerId: 'ann', sessionIds: half });
  });

  test.each(SESSION_LIST_STATES)('of the state %s has what the rule says, in order, over pages and scans of any size', async (state) => {
    const { sessions: all } = await of({ state: 'all', readerId: 'ann', limit: 200 });
    expect(all).toHaveLength(60);
    const expected = all.filter((session) => matchesListState(session, state));
    for (const [limit, scanRows] of [
      [200, 10_000],
      [7, 10_000],
      [3, 5],
    ] as const) {
      const found: SessionSummary[] = [];
      for (let cursor: string | undefined; ;) {
        const page = await of({ state, readerId: 'ann', cursor, limit, scanRows });
        expect(page.sessions.length).toBeLessThanOrEqual(limit);
        found.push(...page.sessions);
        if (page.cursor === null) break;
        cursor = page.cursor;
      }
      expect(found).toEqual(expected);
    }
    expect(expected.length).toBeGreaterThan(5);
    const places = all.map(({ lastActivityAt, sessionId }) => `${lastActivityAt} ${sessionId}`);
    expect(places).toEqual([...places].sort().reverse());
  });

  test('is filtered by project and profile, and its cursor belongs to its filter', async () => {
    const page = await of({ state: 'all', projectId: 'p1', backendProfile: 'b1', limit: 5 });
    expect(page.sessions.every(({ projectId, backendProfile }) => projectId === 'p1' && backendProfile === 'b1')).toBe(true);
    expect(page.sessions).toHaveLength(5);
    await expect(of({ state: 'all', projectId: 'p0', backendProfile: 'b1', cursor: page.cursor })).rejects.toMatchObject({
      code: 'invalid_cursor',
    });
    await expect(of({ state: 'unread' })).rejects.toMatchObject({ code: 'invalid_request' });
    expect(
      (await listSessions(t.db, { tenantId: 'other', state: 'all', cursor: undefined })).sessions.map(({ projectId }) => projectId),
    ).toEqual(['p2']);
  });

  test('does not lose a session that stays where it is while others move to the front', async () => {
    await ensureTenant(t.db.sql, 'moving');
    for (const id of ['m1', 'm2', 'm3', 'm4']) await upsert(id, {}, 'moving');
    const first = await listSessions(t.db, { tenantId: 'moving', state: 'all', limit: 2 });
    expect(idsOf(first.sessions)).toEqual(['m4', 'm3']);
    await run((tx) => writeTurnStarted(tx, { tenantId: 'moving', sessionId: 'm2', runId: 'r', commandId: 'c', title: null }));
    const second = await listSessions(t.db, { tenantId: 'moving', state: 'all', limit: 2, cursor: first.cursor ?? undefined });
    expect(idsOf(second.sessions)).toEqual(['m1']);
  });
});

describe('read marks', () => {
  const unreadOf = async (readerId: string) =>
    idsOf((await listSessions(t.db, { tenantId: 'reader', state: 'unread', readerId, limit: 200 })).sessions).sort();
  const mark = (over: { sessionIds: string[] } | { all: true }, readerId = 'bob') =>
    markSessionsRead(t.db, { tenantId: 'reader', readerId, ...over });
  const change = (sessionId: string) => sessions().renameSession({ tenantId: 'reader', sessionId, title: `t${Math.random()}` });
  beforeAll(async () => {
    for (const id of ['r1', 'r2', 'r3']) await upsert(id, {}, 'reader');
  });

  test('are each reader’s own, by session, in bulk and for all, and end with the next change', async () => {
    expect(await unreadOf('bob')).toEqual(['r1', 'r2', 'r3']);
    expect(await markSessionRead(t.db, { tenantId: 'reader', sessionId: 'r1', readerId: 'bob' })).toMatchObject({
      sessionId: 'r1',
      sessionVersion: 1,
    });
    expect(await unreadOf('bob')).toEqual(['r2', 'r3']);
    const bulk = await mark({ sessionIds: ['r2', 'nothing', 'r2', 'u1'] });
    expect(bulk).toMatchObject({ cursors: [{ sessionId: 'r2', readerId: 'bob' }], unknown: ['nothing', 'u1'] });
    expect(await unreadOf('bob')).toEqual(['r3']);
    expect(await mark({ all: true })).toMatchObject({ cursors: [], unknown: [] });
    expect(await unreadOf('bob')).toEqual([]);
    expect(await unreadOf('eve')).toEqual(['r1', 'r2', 'r3']);
    await change('r2');
    expect(await unreadOf('bob')).toEqual(['r2']);
    const [shown] = (await listSessions(t.db, { tenantId: 'reader', state: 'unread', readerId: 'bob' })).sessions;
    expect(shown?.reader).toEqual({ readerId: 'bob', unread: true, readVersion: 1 });
    await expect(markSessionRead(t.db, { tenantId: 'other', sessionId: 'r1', readerId: 'bob' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
  });

  test('of all hold for what was committed, also behind a transaction that is open, and not for what it commits later', async () => {
    const older = await openClient(t.url);
    await older.query('BEGIN; SELECT pg_current_xact_id()');
    await change('r1'); // above the horizon
    await mark({ all: true }, 'cy');
    expect(await unreadOf('cy')).toEqual([]);
    await older.query(
      `UPDATE runplane.sessions SET version = version + 1, changed_tx = greatest(changed_tx, pg_current_xact_id()::text::bigint) WHERE session_id = 'r3'`,
    );
    await older.query('COMMIT');
    await older.end();
    expect(await unreadOf('cy')).toEqual(['r3']);
  });

  test('never go back', async () => {
    await mark({ sessionIds: ['r1'] });
    await t.db.pool.query(`UPDATE runplane.session_read_cursors SET session_version = 99 WHERE reader_id = 'bob' AND session_id = 'r1'`);
    expect(await mark({ sessionIds: ['r1'] })).toMatchObject({ cursors: [{ sessionVersion: 99 }] });
  });

  test('do not wait for a session that somebody holds', async () => {
    const holder = await openClient(t.url);
    await holder.query(`BEGIN; SELECT FROM runplane.sessions WHERE session_id = 'r1' FOR NO KEY UPDATE`);
    expect(await mark({ sessionIds: ['r1'] }, 'dan')).toMatchObject({ cursors: [{ sessionId: 'r1' }] });
    await holder.end();
  });

  test('of a tenant with many changed sessions are read in the list’s own order, and bounded', async () => {
    // Low numbers: of a server that has just begun, its transactions have no greater ones yet, and what waits for the horizon waits for them.
    await t.db.pool
      .query(`INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, changed_tx, last_tx, last_activity_at)
      SELECT 'big', 'b' || to_char(i, 'FM0000'), 'p', 'b', 'k', 0, i / 4, i / 4, now() - i * interval '1 s' FROM generate_series(1, 1500) i`);
    await t.db.pool.query(`INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version)
      SELECT 'big', session_id, 'ann', 1 FROM runplane.sessions WHERE tenant_id = 'big' AND session_id <> 'b1400'`);
    const request = { tenantId: 'big', state: 'unread', readerId: 'ann', scanRows: 1_200 } as const;
    const first = await listSessions(t.db, request);
    expect(first).toMatchObject({ sessions: [], cursor: expect.any(String) as string });
    const second = await listSessions(t.db, { ...request, cursor: first.cursor ?? undefined });
    expect(second).toMatchObject({ sessions: [{ sessionId: 'b1400' }], cursor: null });
    await markSessionsRead(t.db, { tenantId: 'big', readerId: 'ann', all: true });
    expect(await listSessions(t.db, request)).toEqual({ sessions: [], cursor: null });
  });
});

describe('the list of changes', () => {
  const changes = (after?: string, over: object = {}) => listSessionChanges(t.db, { tenantId: 'changes', after, ...over });
  beforeAll(async () => {
    await ensureTenant(t.db.sql, 'changes');
  });

  test('has each session once, at the place of its last change, and goes on behind a cursor', async () => {
    for (const id of ['c1', 'c2', 'c3']) await upsert(id, {}, 'changes');
    await sessions().renameSession({ tenantId: 'changes', sessionId: 'c1', title: 'x' });
    await waitForHorizon(t.db);
    const first = await waitFor(
      () => changes(undefined, { limit: 2, readerId: 'ann' }),
      ({ sessions: found }) => found.length === 2,
    );
    expect(idsOf(first.sessions)).toEqual(['c2', 'c3']);
    expect(first).toMatchObject({ more: true, sessions: [{ version: 1, reader: { unread: true } }, {}] });
    const second = await waitFor(
      () => changes(first.cursor),
      ({ sessions: found }) => found.length === 1,
    );
    expect(second).toMatchObject({ sessions: [{ sessionId: 'c1', version: 2, reader: null }], more: false });
    expect(await changes(second.cursor)).toEqual({ sessions: [], cursor: second.cursor, more: false });
    expect((await changes('now')).cursor).toBe(second.cursor);
    expect(
      (await listSessionChanges(t.db, { tenantId: 'other', after: 'start' })).sessions.every(({ sessionId }) => sessionId === 'u2'),
    ).toBe(true);
  });

  test('refuses a cursor of another list, store or history', async () => {
    await expect(changes('nonsense')).rejects.toMatchObject({ code: 'invalid_cursor' });
    const forged = (parts: object) => Buffer.from(JSON.stringify([1, 'session-changes', null, parts])).toString('base64url');
    const { storeId } = (await t.db.pool.query<{ storeId: string }>(`SELECT store_id AS "storeId" FROM runplane.store`)).rows[0] ?? {
      storeId: '',
    };
    const { cursor: oldestCursor } = await listSessionChanges(t.db, { tenantId: 'nobody' });
    await expect(changes(forged({ store: 'other', tx: '1', sessionId: 'a' }))).rejects.toMatchObject({ code: 'cursor_expired' });
    await expect(changes(forged({ store: storeId, tx: String(2n ** 62n), sessionId: 'a' }))).rejects.toMatchObject({
      code: 'cursor_expired',
      data: { oldestCursor },
    });
    await expect(changes(forged({ store: storeId, tx: '1', sessionId: 'a\0' }))).rejects.toMatchObject({ code: 'invalid_cursor' });
  });
});

describe('the storage of a session', () => {
  const expired = '2020-01-01T00:00:00Z';
  const attach = (sessionId: string, name: string) =>
    sessions().refreshSessionStorage({ ...key(sessionId), storage: { kind: 'pvc', name } });
  const claim = (owner = 'gc', over: object = {}) =>
    run((tx) => leaseExpiredStorage(tx, { owner, leaseMs: 60_000, limit: 10, kinds: ['pvc', 'folder'], ...over }));
  const endLeases = () =>
    t.db.pool.query(`UPDATE runplane.sessions SET storage_lease_expires_at = now() - interval '1 s' WHERE storage_lease_owner IS NOT NULL`);
  const version = async (sessionId: string) => (await getSession(t.db, key(sessionId))).storage.version;
  afterEach(() => t.db.pool.query(`UPDATE runplane.sessions SET expires_at = NULL WHERE tenant_id = 'acme'`));

  test('is replaced whole, and moves both versions', async () => {
    await upsert('g1');
    const first = await sessions().refreshSessionStorage({
      ...key('g1'),
      storage: {
        kind: 'pvc',
        name: 'claim-1',
        namespace: 'ns',
        phase: 'Bound',
        sizeBytes: 2 ** 40,
        filesCount: 3,
        sha256: 'a'.repeat(64),
        rolloutSubdir: 'x/y',
      },
    });
    expect(first).toMatchObject({ version: 2, storage: { version: 1, sizeBytes: 2 ** 40, rolloutSubdir: 'x/y', phase: 'Bound' } });
    expect(await attach('g1', 'claim-2')).toMatchObject({
      version: 3,
      storage: { kind: 'pvc', name: 'claim-2', namespace: null, sizeBytes: null, rolloutSubdir: 'x/y', version: 2, evictedAt: null },
    });
    await expect(sessions().refreshSessionStorage({ ...key('g1'), storage: { kind: 'folder' } })).rejects.toMatchObject({
      code: 'invalid_request',
    });
    await expect(attach('g1', '../x')).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(attach('nothing', 'x')).rejects.toMatchObject({ code: 'session_not_found' });
  });

  test('is reported gone once, and not where another is attached by now', async () => {
    await upsert('g2');
    await attach('g2', 'a');
    const gone = (name: string, storageVersion: number) => sessions().markSessionStorageEvicted({ ...key('g2'), name, storageVersion });
    await expect(gone('b', 1)).rejects.toMatchObject({ code: 'storage_changed', data: { storageName: 'a', storageVersion: 1 } });
    expect(await gone('a', 1)).toMatchObject({ changed: true, session: { storage: { kind: 'evicted', name: 'a', version: 2 } } });
    expect(await gone('a', 1)).toMatchObject({ changed: false, session: { version: 3 } });
    await attach('g2', 'a');
    await expect(gone('a', 1)).rejects.toMatchObject({ code: 'storage_changed', data: { storageVersion: 3 } });
  });

  test('is leased for deletion when it has expired and no turn is open, to one collector at a time', async () => {
    for (const id of ['e1', 'e2', 'e3', 'e4']) await upsert(id, { expiresAt: id === 'e3' ? '2100-01-01T00:00:00Z' : expired });
    for (const id of ['e1', 'e2', 'e3']) await attach(id, id);
    await startTurn('e2');
    const [held, ...others] = await claim();
    expect(others).toEqual([]);
    expect(held).toMatchObject({
      sessionId: 'e1',
      kind: 'pvc',
      name: 'e1',
      storageVersion: 1,
      epoch: 1,
      attempts: 1,
      leaseRemainingMs: 60_000,
    });
    expect(await claim('other')).toEqual([]);
    const { storages } = await listGcExpiredSessions(t.db, { tenantId });
    expect(storages.map(({ sessionId, isBusy }) => [sessionId, isBusy])).toEqual([
      ['e1', false],
      ['e2', true],
    ]);
    const one = await listGcExpiredSessions(t.db, { tenantId, limit: 1 });
    expect((await listGcExpiredSessions(t.db, { tenantId, cursor: one.cursor ?? '' })).storages).toMatchObject([{ sessionId: 'e2' }]);
    const place = { expiresAt: '0000-01-01T00:00:00.000Z', sessionId: 'e1', tenantId };
    const forged = encodeCursor('expired-storage', place, contentHash({ tenantId }).hash);
    for (const bad of [{ tenantId, cursor: forged }, { cursor: one.cursor ?? '' }])
      await expect(listGcExpiredSessions(t.db, bad)).rejects.toMatchObject({ code: 'invalid_cursor' });
    if (held === undefined) throw new Error('no claim');
    await endTurn('e2');
    await expect(run((tx) => confirmStorageEvicted(tx, { ...held, epoch: 2 }))).rejects.toMatchObject({ code: 'storage_changed' });
    await expect(run((tx) => confirmStorageEvicted(tx, { ...held, owner: 'x' }))).rejects.toMatchObject({ code: 'storage_changed' });
    await endLeases(); // late, but not taken away: the deletion is a fact
    expect(await run((tx) => confirmStorageEvicted(tx, held))).toMatchObject({ storage: { kind: 'evicted', version: 2 } });
    await expect(run((tx) => confirmStorageEvicted(tx, held))).rejects.toMatchObject({ code: 'storage_changed' });
    expect((await claim('next')).map(({ sessionId }) => sessionId)).toEqual(['e2']);
  });

  test('that cannot be deleted is tried again after a pause, and given up for an operator after twenty attempts', async () => {
    await upsert('f1', { expiresAt: expired });
    await attach('f1', 'f');
    const [held] = await claim();
    if (held === undefined) throw new Error('no claim');
    expect(await run((tx) => releaseStorage(tx, held, { error: 'no: password=hunter2' }))).toBe(true);
    expect(await run((tx) => releaseStorage(tx, held, { error: null }))).toBe(false);
    expect((await getSession(t.db, key('f1'))).storage).toMatchObject({
      evictionAttempts: 1,
      evictionError: expect.not.stringContaining('hunter2') as string,
    });
    expect(await claim()).toEqual([]);
    await t.db.pool.query(`UPDATE runplane.sessions SET storage_ready_at = now(), storage_attempts = 19 WHERE session_id = 'f1'`);
    expect(await claim()).toMatchObject([{ epoch: 3, attempts: 20 }]);
    await endLeases();
    expect(await claim()).toEqual([]);
    await attach('f1', 'f');
    expect(await claim()).toMatchObject([{ epoch: 5, attempts: 1 }]);
  });

  test('that is being deleted is not attached again under its name; another name takes the deletion away', async () => {
    await upsert('h1', { expiresAt: expired });
    await attach('h1', 'h');
    const [held] = await claim();
    if (held === undefined) throw new Error('no claim');
    await expect(attach('h1', 'h')).rejects.toMatchObject({ code: 'storage_evicting', retryable: true });
    await attach('h1', 'h2');
    await expect(run((tx) => confirmStorageEvicted(tx, held))).rejects.toMatchObject({ code: 'storage_changed' });
    expect(await run((tx) => releaseStorage(tx, held, { error: null }))).toBe(false);
    expect(await version('h1')).toBe(2);
  });
});

/** The horizon is one for the whole server: a transaction of another spec file may hold it back for a moment. */
async function waitFor<T>(ask: () => Promise<T>, isThere: (answer: T) => boolean): Promise<T> {
  for (const late = Date.now() + 15_000; ;) {
    const answer = await ask();
    if (isThere(answer) || Date.now() > late) return answer;
  }
}
