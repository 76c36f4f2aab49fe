import { inTransaction } from '@runplane/database';
import { admitTurn, createRuns, deleteSession } from '@runplane/runs';
import { makeTenants, newTurn, TENANT } from '@runplane/runs/testing';
import {
  acceptSubmission,
  acquireSessionLease,
  appendAsServer,
  appendSessionEvents,
  createSessions,
  endSubmission,
  forkSession,
  getSubmission,
  importSession,
} from '@runplane/sessions';
import { ending, meet, meetAborted, useRaces } from '../support/races';

// Submissions, deletion and copies of sessions, where two of them meet: the head of the session's log, or the key of a new one, decides.

const t = useRaces();
const tenantId = TENANT;
let sessions = 0;
const aSession = async (...operations: string[]): Promise<{ tenantId: string; sessionId: string }> => {
  const sessionId = `race-${(sessions += 1)}`;
  await createSessions(t.db).createSession({ tenantId, header: { id: sessionId } });
  for (const operationId of operations) await acceptSubmission(t.db, { tenantId, sessionId, operationId, submission: { kind: 'turn' } });
  return { tenantId, sessionId };
};
beforeAll(() => makeTenants(t.db));
const turn = { kind: 'turn' };

describe('twins', () => {
  test('that accept one operation: the second has the receipt of the first; where that is rolled back, it accepts', async () => {
    const key = await aSession();
    const accept = { ...key, operationId: 'op', submission: turn };
    const [first, second] = await meet(
      t.db,
      (tx) => acceptSubmission(tx, accept),
      () => acceptSubmission(t.db, accept),
    );
    expect(second).toEqual({ value: { ...first, status: 'duplicate' } });
    const other = { ...accept, operationId: 'op-2' };
    expect(
      await meetAborted(
        t.db,
        (tx) => acceptSubmission(tx, other),
        () => acceptSubmission(t.db, other),
      ),
    ).toMatchObject({ value: { status: 'accepted' } });
  });

  test('that accept it with other content, or at a revision that has passed: the second is refused', async () => {
    const key = await aSession();
    const [, conflict] = await meet(
      t.db,
      (tx) => acceptSubmission(tx, { ...key, operationId: 'op', submission: turn }),
      () => acceptSubmission(t.db, { ...key, operationId: 'op', submission: { kind: 'note' } }),
    );
    expect(conflict).toMatchObject({ code: 'idempotency_conflict' });
    const [, late] = await meet(
      t.db,
      (tx) => acceptSubmission(tx, { ...key, operationId: 'op-2', submission: { ...turn, expectedRevision: 0 } }),
      () => acceptSubmission(t.db, { ...key, operationId: 'op-3', submission: { ...turn, expectedRevision: 0 } }),
    );
    expect(late).toMatchObject({ code: 'revision_conflict', data: { lastSequence: 1 } });
  });

  test.each([
    ['in one way', 'completed', { value: { changed: false } }],
    ['in two ways', 'failed', { code: 'submission_closed' }],
  ] as const)('that end one submission %s: one end counts', async (_name, state, expected) => {
    const key = await aSession('op', 'next');
    const [first, second] = await meet(
      t.db,
      (tx) => endSubmission(tx, { ...key, operationId: 'op', end: { state: 'completed' } }),
      () => createSessions(t.db).endSubmission({ ...key, operationId: 'op', end: { state } }),
    );
    expect(first).toMatchObject({ changed: true });
    expect(second).toMatchObject(expected);
    expect(await getSubmission(t.db, { ...key, operationId: 'op' })).toMatchObject({ state: 'completed' });
  });

  test('that import or fork into one id: the second finds it taken', async () => {
    const key = await aSession();
    const content = async function* () {
      yield await Promise.resolve(
        Buffer.from(`{"type":"session","id":"${key.sessionId}-copy"}\n{"sequence":0,"type":"x","time":1,"data":{}}\n`),
      );
    };
    const ends = await Promise.all([
      ending(importSession(t.db, { tenantId, content: content() })),
      ending(importSession(t.db, { tenantId, content: content() })),
      ending(forkSession(t.db, { ...key, newSessionId: `${key.sessionId}-copy` })),
    ]);
    expect(ends.filter((each) => 'value' in each)).toHaveLength(1);
    expect(ends.flatMap((each) => ('code' in each ? [each.code] : []))).toEqual(['session_exists', 'session_exists']);
  });
});

describe('a deletion', () => {
  const approval = { approvalId: 'a', toolName: 't', arguments: {} };
  const rivals: readonly (readonly [string, (key: { tenantId: string; sessionId: string }) => Promise<unknown>])[] = [
    ['an append', (key) => appendSessionEvents(t.db, { ...key, events: [{ type: 'input/enqueued', data: {} }] })],
    ['an acceptance', (key) => acceptSubmission(t.db, { ...key, operationId: 'late', submission: turn })],
    ['an end', (key) => createSessions(t.db).endSubmission({ ...key, operationId: 'op', end: { state: 'completed' } })],
    ['a worker that takes the lease', (key) => acquireSessionLease(t.db, { ...key, owner: 'w' })],
    ['the admission of a turn', (key) => createRuns(t.db).admitTurn({ ...key, turn: newTurn(), idempotencyKey: 'k' })],
    [
      'a request of an approval',
      (key) =>
        inTransaction(t.db, (tx) =>
          appendAsServer(tx, key, { events: [{ type: 'approval/requested', data: { approval_id: approval.approvalId } }] }),
        ),
    ],
  ];
  test.each(rivals)('that is committed first: %s finds the session deleted', async (_name, second) => {
    const key = await aSession('op');
    const [, other] = await meet(
      t.db,
      (tx) => deleteSession(tx, key),
      () => second(key),
    );
    expect(other).toMatchObject({ code: 'session_deleted' });
  });

  test('closes what was accepted just before it', async () => {
    const key = await aSession();
    const [, deleted] = await meet(
      t.db,
      (tx) => acceptSubmission(tx, { ...key, operationId: 'op', submission: turn }),
      () => createRuns(t.db).deleteSession(key),
    );
    expect(deleted).toMatchObject({ value: { changed: true } });
  });

  test('finds the turn that was admitted just before it, and the lease', async () => {
    const [busy, leased] = [await aSession(), await aSession()];
    const [, deleted] = await meet(
      t.db,
      (tx) => admitTurn(tx, { ...busy, turn: newTurn(), idempotencyKey: 'k' }),
      () => createRuns(t.db).deleteSession(busy),
    );
    expect(deleted).toMatchObject({ code: 'session_in_use', data: { why: 'turn-open' } });
    const [, late] = await meet(
      t.db,
      (tx) => acquireSessionLease(tx, { ...leased, owner: 'w' }),
      () => createRuns(t.db).deleteSession(leased),
    );
    expect(late).toMatchObject({ code: 'session_in_use', data: { why: 'leased', holder: 'w' } });
  });
});
