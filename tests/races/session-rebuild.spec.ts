import { newId } from '@runplane/contracts';
import { inTransaction, isTx, openDb, type At, type Tx } from '@runplane/database';
import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import { TENANT } from '@runplane/runs/testing';
import {
  acceptSubmission,
  acquireSessionLease,
  appendAsServer,
  appendSessionEvents,
  createSessions,
  endSubmission,
  getSessionLog,
  rebuildSession,
  resolveApproval,
  type SessionKey,
} from '@runplane/sessions';
import { ending, hold, useRaces } from '../support/races';

// The switch of a rebuild against whoever writes the session: the head's row is where they meet, and neither is lost.

const t = useRaces();
const note = (text: string) => ({ type: 'context/note-appended', data: { path: 'plan', text } });
const by = { type: 'user' as const, id: 'ann' };

const accepted = (operationId: string) => ({ operationId, submission: { kind: 'turn', payload: { text: operationId } } });
const inOwn = <T>(at: At, work: (tx: Tx) => Promise<T>): Promise<T> => (isTx(at) ? work(at) : inTransaction(at, work));

/** With a note, an open approval and an unfinished submission. */
async function aSession(): Promise<SessionKey> {
  const key = { tenantId: TENANT, sessionId: newId('session') };
  await createSessions(t.db).createSession({ tenantId: TENANT, header: { id: key.sessionId } });
  const events = [note('one,'), { type: 'approval/requested', data: { approval_id: 'a', timeout_seconds: 3_600 } }];
  await inTransaction(t.db, (tx) => appendAsServer(tx, key, { events }));
  await acceptSubmission(t.db, { ...key, ...accepted('op-1') });
  return key;
}

const rebuild = (key: SessionKey) => rebuildSession(t.db, key, { owner: newId('test') });
/** How the log goes on and what its views say; a rebuild that finds nothing to change says that they agree. */
async function standing(key: SessionKey): Promise<unknown> {
  const { rows } = await t.db.pool.query<Record<string, unknown>>(
    `SELECT n.content, a.state::text AS approval, h.open_submissions AS open, h.lease_owner AS leased, q.operation_id AS next FROM runplane.session_heads h
       JOIN runplane.context_notes n USING (tenant_id, session_id) JOIN runplane.approvals a USING (tenant_id, session_id)
       LEFT JOIN runplane.submission_heads q USING (tenant_id, session_id) WHERE h.tenant_id = $1 AND h.session_id = $2`,
    [key.tenantId, key.sessionId],
  );
  return rows[0];
}
const untouched = { content: 'one,', approval: 'pending', open: 1, leased: null, next: 'op-1' };

const WRITERS: Record<
  string,
  [write: (at: At, key: SessionKey) => Promise<unknown>, then: Partial<typeof untouched> | { leased: string }]
> = {
  'an append': [(at, key) => appendSessionEvents(at, { ...key, events: [{ type: 'input/enqueued', data: { input_id: 'i' } }] }), {}],
  'whoever takes the lease': [(at, key) => acquireSessionLease(at, { ...key, owner: 'w' }), { leased: 'w' }],
  'an approval': [
    (at, key) => inOwn(at, (tx) => resolveApproval(tx, { ...key, approvalId: 'a', resolution: 'approved', revision: 0, actor: by })),
    { approval: 'approved' },
  ],
  'a submission that comes': [(at, key) => acceptSubmission(at, { ...key, ...accepted('op-2') }), { open: 2 }],
  'a submission that ends': [
    (at, key) => inOwn(at, (tx) => endSubmission(tx, { ...key, operationId: 'op-1', end: { state: 'completed' } })),
    { open: 0 },
  ],
};

describe.each(Object.entries(WRITERS))('%s', (_name, [write, then]) => {
  test('that holds the head is waited for, and is in what the rebuild shows', async () => {
    const key = await aSession();
    const held = await hold(t.db, (tx) => write(tx, key));
    const rebuilding = ending(rebuild(key));
    await waitUntilBlocked(t.db, 1);
    await held.commit();

    expect(await rebuilding).toMatchObject({ value: { changedRows: 0 } });
    expect(await standing(key)).toMatchObject({ ...untouched, ...then, ...('open' in then && then.open === 0 ? { next: null } : {}) });
  });

  test('that comes while a rebuild switches waits for it, and is not lost', async () => {
    const key = await aSession();
    await t.db.pool.query(`UPDATE runplane.context_notes SET content = 'lost' WHERE session_id = $1`, [key.sessionId]);
    await t.db.pool.query(
      `UPDATE runplane.session_heads SET snapshot = '{"activeTurnId":"lost"}', open_submissions = 7 WHERE session_id = $1`,
      [key.sessionId],
    );
    const client = await openClient(t.url);
    await client.query('BEGIN');
    await client.query('SELECT FROM runplane.submission_heads WHERE session_id = $1 FOR NO KEY UPDATE', [key.sessionId]);
    const rebuilding = ending(rebuild(key)); // holds the head, and waits for the queue's
    await waitUntilBlocked(t.db, 1);
    const writing = ending(write(t.db, key));
    await waitUntilBlocked(t.db, 2);
    await client.query('COMMIT');
    await client.end();

    expect(await rebuilding).toMatchObject({ value: { changedRows: 3 } });
    expect(await writing).toMatchObject({ value: expect.anything() as unknown });
    expect(await standing(key)).toMatchObject({ ...untouched, ...then, ...('open' in then && then.open === 0 ? { next: null } : {}) });
    expect(await rebuild(key)).toMatchObject({ changedRows: 0 });
  });
});

test('two rebuilds at once: one does it, the other is told', async () => {
  const key = await aSession();
  const endings = await Promise.all([ending(rebuild(key)), ending(rebuild(key))]);
  expect(endings.filter((each) => 'value' in each).length).toBeGreaterThan(0); // both, where the first was done before the second came
  for (const each of endings) if ('code' in each) expect(each.code).toBe('rebuild_running');
  expect(await rebuild(key)).toMatchObject({ changedRows: 0 });
  expect((await getSessionLog(t.db, key)).lastSequence).toBe(2);
});

test('a newer program builds a team’s view while an older one is about to put its own in the place: the newer one stays', async () => {
  const key = await aSession();
  const counter = (version: number) => ({
    key: 'counter',
    version,
    touches: () => true,
    initial: () => ({ version, events: 0 }),
    apply: (value: { [name: string]: unknown }) => ({ version, events: Number(value['events']) + 1 }),
  });
  const older = await openDb({ url: t.url, applicationName: 'race-older', projections: [counter(1)] });
  const newer = await openDb({ url: t.url, applicationName: 'race-newer', projections: [counter(2)] });
  try {
    const held = await hold(newer, (tx) =>
      appendSessionEvents(tx, { ...key, events: [{ type: 'input/enqueued', data: { input_id: 'i' } }] }),
    );
    const rebuilding = ending(rebuildSession(older, key, { owner: newId('test') })); // has folded, and waits for the head
    await waitUntilBlocked(t.db, 1);
    await held.commit();

    expect(await rebuilding).toMatchObject({ value: { changedRows: 0 } });
    const { rows } = await t.db.pool.query(`SELECT version, value FROM runplane.session_views WHERE session_id = $1 AND key = 'counter'`, [
      key.sessionId,
    ]);
    expect(rows).toEqual([{ version: 2, value: { version: 2, events: 4 } }]);
  } finally {
    await older.close();
    await newer.close();
  }
});
