import { inTransaction, type Db } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon, waitUntilBlocked } from '@runplane/database/testing';
import { readFeed } from '@runplane/outbox';
import {
  acceptSubmission,
  acquireSessionLease,
  appendSessionEvents,
  countUnfinishedSubmissions,
  createSessions,
  getApproval,
  getInputRequest,
  getSession,
  getSessionLog,
  listSessionChanges,
  listPendingApprovals,
  listPendingInputs,
  listSessions,
  markSessionStorageEvicted,
  refreshSessionStorage,
  releaseSessionLease,
  upsertSession,
  waitForApproval,
} from '@runplane/sessions';
import { createRuns, deleteRun, deleteSession, eraseDeletedOnce, explainSession, getRun, getSessionSummary } from './index';
import { aClaimedTurn, aRun, aTurn, makeTenants, newTurn, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));

const key = (sessionId: string) => ({ tenantId: TENANT, sessionId });
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });
const create = (id: string, fields = {}) => createSessions(t.db).createSession({ tenantId: TENANT, header: { id, ...fields } });
const remove = (sessionId: string, reason?: string) => createRuns(t.db).deleteSession({ ...key(sessionId), reason, requestedBy: 'ann' });
const erase = (over = {}) => eraseDeletedOnce(t.db, { delayMs: 0, ...over });

/** A session with something in every table that hangs on its log. */
async function aFullSession(id: string): Promise<void> {
  await create(id, { secret: 'in the header' });
  const { epoch } = await acquireSessionLease(t.db, { ...key(id), owner: 'w' });
  await appendSessionEvents(t.db, {
    ...key(id),
    epoch,
    events: [
      { type: 'context/window-started', data: { windowId: 'w1' } },
      { type: 'user/message', data: { content: 'CANARY said' } },
      { type: 'context/note-written', data: { path: 'a', text: 'CANARY noted' } },
      { type: 'channel/bound', data: { channel_id: 'tg', account_id: 'a', conversation_id: 'c' } },
      { type: 'channel/inbound', data: { channel_id: 'tg', account_id: 'a', conversation_id: 'c', message_id: 'm', text: 'CANARY' } },
      { type: 'channel/delivery/queued', data: { delivery_id: 'd', text: 'CANARY' } },
      { type: 'subagent/descriptor', data: { name: 'CANARY' } },
      { type: 'approval/requested', data: { approval_id: 'ap', tool_name: 't', arguments_summary: { x: 'CANARY' } } },
      { type: 'user-input/requested', data: { request_id: 'in', prompt: 'CANARY?', expires_at_ms: Date.now() + 60_000 } },
    ],
  });
  await releaseSessionLease(t.db, { ...key(id), owner: 'w', epoch });
  await acceptSubmission(t.db, { ...key(id), operationId: 'op', submission: { kind: 'turn', payload: { text: 'CANARY' } } });
}

/** Every table that has rows of a session, with how many; the feed, which keeps its own time, and tombstones are apart. */
async function rowsOf(db: Db, sessionId: string): Promise<Record<string, number>> {
  const tables = (
    await db.pool.query<{ name: string }>(
      `SELECT table_name AS name FROM information_schema.columns WHERE table_schema = 'runplane' AND column_name = 'session_id'
         AND table_name NOT IN ('outbox_events', 'run_tombstones', 'session_tombstones') ORDER BY 1`,
    )
  ).rows;
  const counts = await Promise.all(
    tables.map(async ({ name }) => {
      const found = await db.pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM runplane.${name} WHERE session_id = $1`, [
        sessionId,
      ]);
      return [name, found.rows[0]?.n ?? 0] as const;
    }),
  );
  return Object.fromEntries(counts.filter(([, n]) => n > 0));
}

const typesInFeed = async (sessionId: string): Promise<string[]> => {
  await waitForHorizon(t.db); // other test files write to the same cluster
  const { events } = await readFeed(t.db.sql, { tenantId: TENANT, limit: 500 });
  return events.filter((event) => event.sessionId === sessionId && event.stream === 'session').map(({ type }) => type);
};

describe('a deleted session', () => {
  test('is gone for every reader and writer at once, and what was open in it is closed', async () => {
    await aFullSession('s1');
    const deleted = await remove('s1', 'password=CANARY please');
    expect(deleted).toMatchObject({ sessionId: 's1', changed: true });
    expect(await remove('s1')).toEqual({ ...deleted, changed: false });
    const gone = coded('session_deleted', { sessionId: 's1', deletedAt: deleted.deletedAt });
    const calls: (() => Promise<unknown>)[] = [
      () => getSession(t.db, key('s1')),
      () => getSessionLog(t.db, key('s1')),
      () => getApproval(t.db, { ...key('s1'), approvalId: 'ap' }),
      () => waitForApproval(t.db, { ...key('s1'), approvalId: 'ap', waitMs: 0 }),
      () => getInputRequest(t.db, { ...key('s1'), requestId: 'in' }),
      () => listPendingApprovals(t.db, key('s1')),
      () => listPendingInputs(t.db, key('s1')),
      () => getSessionSummary(t.db, key('s1')),
      () => explainSession(t.db, key('s1')),
      () => countUnfinishedSubmissions(t.db, key('s1')),
      () => create('s1'),
      () => createSessions(t.db).renameSession({ ...key('s1'), title: 'x' }),
      () => inTransaction(t.db, (tx) => upsertSession(tx, { ...key('s1'), session: { projectId: 'p1', backendProfile: 'demo' } })),
      () => acquireSessionLease(t.db, { ...key('s1'), owner: 'w' }),
      () => appendSessionEvents(t.db, { ...key('s1'), events: [{ type: 'input/enqueued', data: {} }] }),
      () => acceptSubmission(t.db, { ...key('s1'), operationId: 'op', submission: { kind: 'turn', payload: { text: 'CANARY' } } }),
      () => createSessions(t.db).endSubmission({ ...key('s1'), operationId: 'op', end: { state: 'completed' } }),
      () =>
        createRuns(t.db).createRun({ tenantId: TENANT, run: { projectId: 'p1', backendProfile: 'demo', sessionRef: { sessionId: 's1' } } }),
      () => createRuns(t.db).admitTurn({ ...key('s1'), turn: newTurn(), idempotencyKey: 'k' }),
    ];
    for (const call of calls) await expect(call()).rejects.toEqual(gone);
    expect(await typesInFeed('s1')).toEqual(
      expect.arrayContaining(['submission/failed', 'approval/resolved', 'user-input/resolved', 'session/deleted']),
    );
    expect((await typesInFeed('s1')).at(-1)).toBe('session/deleted');
    const { sessions } = await listSessions(t.db, { tenantId: TENANT, state: 'all' });
    expect(sessions.map(({ sessionId }) => sessionId)).not.toContain('s1');
    const changes = await listSessionChanges(t.db, { tenantId: TENANT, limit: 200 });
    expect(changes.sessions.find(({ sessionId }) => sessionId === 's1')).toMatchObject({ deletedAt: deleted.deletedAt });
  });

  test('is erased in parts: no row and no text of it is left but its tombstone', async () => {
    await aFullSession('s2');
    await remove('s2');
    expect(await erase({ delayMs: 3_600_000 })).toMatchObject({ changed: 0 });
    expect(await erase({ chunkRows: 2 })).toMatchObject({ failed: 0, kept: 0, next: null });
    expect(await rowsOf(t.db, 's2')).toEqual({});
    expect(await typesInFeed('s2')).toEqual(['session/deleted']);
    await expect(getSession(t.db, key('s2'))).rejects.toEqual(coded('session_not_found'));
    const { rows } = await t.db.pool.query<{ lastSequence: number }>(
      `SELECT last_sequence::int AS "lastSequence" FROM runplane.session_tombstones WHERE session_id = 's2'`,
    );
    expect(rows).toEqual([{ lastSequence: 13 }]);
    expect(await erase()).toMatchObject({ changed: 0 });
  });

  test('leaves nothing of a rebuild that folds a page at that moment', async () => {
    await create('s2r');
    await remove('s2r');
    const page = await openClient(t.url);
    try {
      await page.query(`INSERT INTO runplane.session_rebuilds (tenant_id, session_id) VALUES ($1, 's2r')`, [TENANT]);
      await page.query('BEGIN');
      await page.query(`SELECT FROM runplane.session_rebuilds WHERE session_id = 's2r' FOR NO KEY UPDATE`);
      await page.query(
        `INSERT INTO runplane.context_notes (tenant_id, session_id, path, content, updated_sequence) VALUES (chr(1) || $1, 's2r', 'a', '', 0)`,
        [TENANT],
      );
      const erasure = erase();
      await waitUntilBlocked(t.db, 1);
      await page.query('COMMIT');
      expect(await erasure).toMatchObject({ changed: 1, failed: 0 });
    } finally {
      await page.end();
    }
    expect(await rowsOf(t.db, 's2r')).toEqual({});
  });

  test('leaves its id to another one, whose events have other ids and come behind in the feed', async () => {
    await create('s3');
    const first = await acceptSubmission(t.db, { ...key('s3'), operationId: 'op', submission: { kind: 'turn' } });
    await remove('s3');
    await erase();
    await create('s3');
    const second = await acceptSubmission(t.db, { ...key('s3'), operationId: 'op', submission: { kind: 'turn' } });
    expect(second).toMatchObject({ status: 'accepted', acceptedSequence: 0 });
    expect(second.submissionId).not.toBe(first.submissionId);
    expect(await typesInFeed('s3')).toEqual(['session/deleted', 'submission/accepted']);
    const ids = await t.db.pool.query(`SELECT DISTINCT event_id FROM runplane.outbox_events WHERE session_id = 's3'`);
    expect(ids.rows).toHaveLength(4);
  });

  test('takes the epochs of its lease along: whoever held it does not write to the next session of its id', async () => {
    await create('s8');
    const { epoch } = await acquireSessionLease(t.db, { ...key('s8'), owner: 'old' });
    await releaseSessionLease(t.db, { ...key('s8'), owner: 'old', epoch });
    await remove('s8');
    await erase();
    await create('s8');
    const next = await acquireSessionLease(t.db, { ...key('s8'), owner: 'new' });
    expect(next.epoch).toBe(epoch + 1);
    const late = appendSessionEvents(t.db, { ...key('s8'), epoch, events: [{ type: 'user/message', data: { content: 'late' } }] });
    await expect(late).rejects.toEqual(coded('session_lease_lost', { reason: 'other' }));
  });

  test('takes its runs along, and hands its storage to the collector first', async () => {
    const turn = await aClaimedTurn(t.db, 's4');
    await inTransaction(t.db, (tx) => refreshSessionStorage(tx, { ...key('s4'), storage: { kind: 'folder', name: 'f4' } }));
    await expect(remove('s4')).rejects.toEqual(coded('session_in_use', { why: 'turn-open', holder: turn.run.id }));
    await createRuns(t.db).finishRun({ tenantId: TENANT, runId: turn.run.id, epoch: turn.epoch, outcome: { terminalStatus: 'completed' } });
    const { storage } = await getSession(t.db, key('s4'));
    await remove('s4');
    expect(await erase()).toMatchObject({ kept: 1 });
    await expect(getRun(t.db, { tenantId: TENANT, runId: turn.run.id })).rejects.toEqual(coded('run_deleted'));
    expect(Object.keys(await rowsOf(t.db, 's4')).sort()).toEqual(['session_heads', 'sessions']);
    const [due] = (
      await t.db.pool.query<{ due: boolean }>(`SELECT expires_at <= now() AS due FROM runplane.sessions WHERE session_id = 's4'`)
    ).rows;
    expect(due).toEqual({ due: true });
    await inTransaction(t.db, (tx) => markSessionStorageEvicted(tx, { ...key('s4'), name: 'f4', storageVersion: storage.version }));
    expect(await erase()).toMatchObject({ changed: 1, kept: 0 });
    expect(await rowsOf(t.db, 's4')).toEqual({});
  });

  test('is refused while somebody works in it, and to another tenant', async () => {
    await create('s5');
    const { epoch } = await acquireSessionLease(t.db, { ...key('s5'), owner: 'w' });
    await expect(remove('s5')).rejects.toEqual(coded('session_in_use', { why: 'leased', holder: 'w' }));
    await expect(createRuns(t.db).deleteSession({ tenantId: 'other', sessionId: 's5' })).rejects.toEqual(coded('session_not_found'));
    await expect(remove('none')).rejects.toEqual(coded('session_not_found'));
    await expect(createRuns(t.db).deleteSession({ ...key('s5'), reason: 'x'.repeat(3000) })).rejects.toEqual(coded('invalid_request'));
    await releaseSessionLease(t.db, { ...key('s5'), owner: 'w', epoch });
    await createRuns(t.db).createRun({
      tenantId: TENANT,
      run: { projectId: 'p1', backendProfile: 'demo', sessionRef: { sessionId: 's5' } },
    });
    await expect(remove('s5')).rejects.toEqual(coded('session_in_use', { why: 'run-open' }));
  });

  test('and a copy whose maker has died, are erased alike; of the copy nothing stays', async () => {
    await create('s7');
    for (const table of ['sessions', 'session_heads'])
      await t.db.pool.query(
        `UPDATE runplane.${table} SET copying = true, deleted_at = runplane.app_now() - interval '59 minutes' WHERE session_id = 's7'`,
      );
    await expect(getSession(t.db, key('s7'))).rejects.toEqual(coded('session_not_found'));
    await expect(remove('s7')).rejects.toEqual(coded('session_not_found'));
    expect(await erase()).toMatchObject({ changed: 0 });
    for (const table of ['sessions', 'session_heads'])
      await t.db.pool.query(`UPDATE runplane.${table} SET deleted_at = deleted_at - interval '2 minutes' WHERE session_id = 's7'`);
    expect(await erase()).toMatchObject({ changed: 1 });
    expect(await t.db.pool.query(`SELECT FROM runplane.session_tombstones WHERE session_id = 's7'`)).toMatchObject({ rowCount: 0 });
  });

  test('whose deletion is rolled back is as it was', async () => {
    await aFullSession('s6');
    const work = inTransaction(t.db, async (tx) => {
      await deleteSession(tx, key('s6'));
      throw new Error('no');
    });
    await expect(work).rejects.toThrow('no');
    expect(await countUnfinishedSubmissions(t.db, key('s6'))).toEqual({ unfinished: 1, turns: 1 });
  });
});

describe('a run that is deleted on demand', () => {
  test('leaves a tombstone; a repeat finds it removed', async () => {
    const run = await aRun(t.db);
    await expect(deleteRun(t.db, { tenantId: TENANT, runId: run.id })).rejects.toEqual(coded('run_in_use', { why: 'open' }));
    await createRuns(t.db).cancelRun({ tenantId: TENANT, runId: run.id, reason: 'enough' });
    await expect(deleteRun(t.db, { tenantId: 'other', runId: run.id })).rejects.toEqual(coded('run_not_found'));
    const deleted = await deleteRun(t.db, { tenantId: TENANT, runId: run.id });
    expect(deleted).toMatchObject({ runId: run.id, changed: true });
    expect(await deleteRun(t.db, { tenantId: TENANT, runId: run.id })).toEqual({ ...deleted, changed: false });
    await expect(getRun(t.db, { tenantId: TENANT, runId: run.id })).rejects.toEqual(coded('run_deleted'));
  });

  test('is not the last of its session, which would show nothing', async () => {
    const first = await aTurn(t.db, 'r1');
    await createRuns(t.db).cancelRun({ tenantId: TENANT, runId: first.run.id, reason: 'enough' });
    await expect(deleteRun(t.db, { tenantId: TENANT, runId: first.run.id })).rejects.toEqual(
      coded('run_in_use', { why: 'shown-by-session' }),
    );
    const second = await aTurn(t.db, 'r1');
    await createRuns(t.db).cancelRun({ tenantId: TENANT, runId: second.run.id, reason: 'enough' });
    expect(await deleteRun(t.db, { tenantId: TENANT, runId: first.run.id })).toMatchObject({ changed: true });
  });
});
