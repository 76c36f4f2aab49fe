import { digestOf, OPEN_REQUESTS_MAX, type JsonObject, type RequestApproval, type RequestInput } from '@runplane/contracts';
import { ensureTenant, inTransaction, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendAsServer } from './append-as-server';
import { appendSessionEvents } from './append-session-events';
import { cancelOpenRequests } from './cancel-open-requests';
import { expireRequestsOnce } from './expire-requests-once';
import { rebuildSession } from './rebuild/rebuild-session';
import { assertApproved, getApproval, getInputRequest, listPendingApprovals, listPendingInputs, waitForApproval, waitForInput } from './read-requests'; // prettier-ignore
import { requestProbes } from './requests.sql';
import { acquireSessionLease, revokeSessionLease } from './session-lease';
import { createSessions } from './sessions';

// Approvals and input requests of a session worker, from the request to its end.

const t = useDatabase();
const tenantId = 'acme';
const ann = { type: 'user', id: 'ann', name: 'Ann' } as const;
const call = { command: 'rm', paths: ['a', 'b'] };
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });
const sessions = () => createSessions(t.db);
const approve = (key: { sessionId: string; approvalId: string }, over: object = {}) =>
  sessions().resolveApproval({ tenantId, ...key, resolution: 'approved', actor: ann, ...over });
const answer = (key: { sessionId: string; requestId: string }, value: JsonObject | string, over: object = {}) =>
  sessions().resolveInput({ tenantId, ...key, outcome: 'answered', value, actor: ann, ...over });

beforeAll(async () => {
  for (const id of [tenantId, 'other']) await ensureTenant(t.db.sql, id);
});

let made = 0;

/** A session whose lease a worker holds. */
async function aSession() {
  const sessionId = `s-${(made += 1)}`;
  await sessions().createSession({ tenantId, header: { id: sessionId } });
  const { epoch } = await acquireSessionLease(t.db, { tenantId, sessionId, owner: 'w' });
  return { tenantId, sessionId, epoch };
}
type Held = Awaited<ReturnType<typeof aSession>>;

const ask = (held: Held, over: Partial<RequestApproval> = {}) =>
  sessions().requestApproval({ ...held, approvalId: 'a1', toolName: 'bash', arguments: call, ...over });
const question = (held: Held, over: Partial<RequestInput> = {}) =>
  sessions().requestInput({ ...held, requestId: 'q1', prompt: 'Which size?', inputSchema: { enum: ['s', 'm'] }, ...over });

/** Lets the time of everything that a session asks be over. */
const passTime = (sessionId: string) =>
  t.db.pool.query(
    `WITH a AS (UPDATE runplane.approvals SET expires_at = runplane.app_now() WHERE session_id = $1)
     UPDATE runplane.input_requests SET expires_at = runplane.app_now() WHERE session_id = $1`,
    [sessionId],
  );

const log = async (sessionId: string): Promise<[string, JsonObject][]> => {
  const { rows } = await t.db.pool.query('SELECT type, data FROM runplane.session_events WHERE session_id = $1 ORDER BY sequence', [
    sessionId,
  ]);
  return rows.map(({ type, data }: { type: string; data: JsonObject }) => [type, data]);
};

test('an approval is asked for, shown, decided once, and allows its call and no other', async () => {
  const held = await aSession();
  const key = { sessionId: held.sessionId, approvalId: 'a1' };

  const asked = await ask(held, { callId: 'c1', turnId: 't1', reason: 'it deletes; password=hunter22', timeoutSeconds: 60 });
  const again = await ask(held, { callId: 'c1', turnId: 't1', reason: 'it deletes; password=hunter22', timeoutSeconds: 60 });

  expect(asked).toMatchObject({ replayed: false, approval: { toolName: 'bash', callId: 'c1', turnId: 't1', outcome: 'pending', revision: 0, actor: {}, argumentsSummary: call, argumentsDigest: digestOf(call), reason: 'it deletes; password=[redacted]' } }); // prettier-ignore
  expect(asked.approval.expiresInMs).toBeGreaterThan(50_000);
  expect(again).toEqual({ replayed: true, approval: { ...asked.approval, expiresInMs: expect.any(Number) as number } });
  await expect(ask(held, { arguments: { ...call, paths: [] } })).rejects.toEqual(coded('approval_conflict', { state: 'pending' }));
  await expect(assertApproved(t.db, { tenantId, ...key, arguments: call })).rejects.toEqual(coded('not_approved', { state: 'pending' }));

  const approved = await approve(key, { reason: 'go on' });

  expect(approved).toMatchObject({ replayed: false, approval: { outcome: 'approved', revision: 1, actor: ann, resolutionReason: 'go on', expiresInMs: null } }); // prettier-ignore
  expect(await approve(key, { reason: 'go on' })).toEqual({ ...approved, replayed: true });
  await expect(approve(key, { actor: { type: 'user', id: 'bob' } })).rejects.toEqual(coded('approval_not_pending', { state: 'approved', revision: 1 })); // prettier-ignore
  await expect(approve(key, { resolution: 'rejected' })).rejects.toEqual(coded('approval_not_pending'));
  expect(await assertApproved(t.db, { tenantId, ...key, arguments: { paths: ['a', 'b'], command: 'rm' } })).toEqual(approved.approval);
  await expect(assertApproved(t.db, { tenantId, ...key, arguments: { ...call, force: true } })).rejects.toEqual(coded('approval_mismatch'));
  expect((await log(held.sessionId)).map(([type]) => type)).toEqual(['approval/requested', 'approval/resolved']);
  await expect(ask(held, { arguments: 'x' })).rejects.toEqual(coded('approval_conflict', { state: 'approved' }));
});

test('a question is answered as its schema says, once; its repeat is the same question although time has passed', async () => {
  const held = await aSession();
  const key = { sessionId: held.sessionId, requestId: 'q1' };

  const asked = await question(held);
  const again = await question(held);

  expect(asked).toMatchObject({ replayed: false, request: { status: 'pending', outcome: null, value: null, prompt: 'Which size?' } });
  expect(asked.request.expiresAtMs).toBe(Date.parse(asked.request.createdAt) + 300_000);
  expect(again).toMatchObject({ replayed: true, request: { expiresAtMs: asked.request.expiresAtMs } });
  await expect(question(held, { timeoutSeconds: 5 })).rejects.toEqual(coded('input_request_conflict'));
  await expect(question(held, { prompt: 'Which colour?' })).rejects.toEqual(coded('input_request_conflict'));
  await expect(question(held, { requestId: 'q2', inputSchema: { $ref: 'https://x/y' } })).rejects.toEqual(coded('invalid_input_schema'));
  await expect(answer(key, 'xl')).rejects.toEqual(coded('invalid_input_value'));

  const answered = await answer(key, 'm');

  expect(answered).toMatchObject({
    replayed: false,
    request: { status: 'resolved', outcome: 'answered', value: 'm', revision: 1, actor: ann },
  });
  expect(await answer(key, 'm')).toEqual({ ...answered, replayed: true });
  await expect(answer(key, 's')).rejects.toEqual(coded('input_request_not_pending', { state: 'answered' }));
  expect(await getInputRequest(t.db, { tenantId, ...key })).toEqual(answered.request);
});

test('only the holder of the lease asks; nobody else names what is not there', async () => {
  const held = await aSession();
  await ask(held);
  await revokeSessionLease(t.db, held);

  await expect(ask(held, { approvalId: 'a2' })).rejects.toEqual(coded('session_lease_lost'));
  await expect(ask(held)).rejects.toEqual(coded('session_lease_lost'));
  await expect(question(held)).rejects.toEqual(coded('session_lease_lost'));
  await expect(ask({ ...held, sessionId: 'nowhere' })).rejects.toEqual(coded('session_not_found'));
  for (const key of [
    { tenantId: 'other', sessionId: held.sessionId, approvalId: 'a1' },
    { tenantId, sessionId: held.sessionId, approvalId: 'a9' },
  ]) {
    // prettier-ignore
    await expect(getApproval(t.db, key)).rejects.toEqual(coded('approval_not_found'));
    await expect(sessions().resolveApproval({ ...key, resolution: 'approved', actor: ann })).rejects.toEqual(coded('approval_not_found'));
    await expect(waitForInput(t.db, { ...key, requestId: 'a1', waitMs: 0 })).rejects.toEqual(coded('input_request_not_found'));
  }
});

test('what is over in time cannot be decided, and the sweeper tells its end in the log, once', async () => {
  const held = await aSession();
  const { sessionId } = held;
  await ask(held);
  await question(held);
  await ask(held, { approvalId: 'later' });
  await passTime(sessionId);
  await t.db.pool.query(`UPDATE runplane.approvals SET expires_at = expires_at + interval '1 hour' WHERE approval_id = 'later' AND session_id = $1`, [sessionId]); // prettier-ignore

  await expect(approve({ sessionId, approvalId: 'a1' })).rejects.toEqual(coded('approval_expired'));
  await expect(answer({ sessionId, requestId: 'q1' }, 'm')).rejects.toEqual(coded('input_request_expired'));
  expect((await getApproval(t.db, { tenantId, sessionId, approvalId: 'a1' })).expiresInMs).toBe(0);
  expect((await listPendingApprovals(t.db, { tenantId, sessionId })).approvals.map(({ approvalId }) => approvalId)).toEqual(['later']);
  const [first, second] = await Promise.all([expireRequestsOnce(t.db), expireRequestsOnce(t.db)]);

  expect(first.changed + second.changed).toBe(1);
  expect(await expireRequestsOnce(t.db)).toEqual({ changed: 0, failed: 0 });
  expect(await getApproval(t.db, { tenantId, sessionId, approvalId: 'a1' })).toMatchObject({
    outcome: 'expired',
    actor: { type: 'system' },
  });
  expect(await getInputRequest(t.db, { tenantId, sessionId, requestId: 'q1' })).toMatchObject({ outcome: 'expired', value: null });
  await expect(approve({ sessionId, approvalId: 'a1' })).rejects.toEqual(coded('approval_not_pending', { state: 'expired' }));
  expect((await log(sessionId)).slice(-2)).toEqual([
    ['approval/resolved', expect.objectContaining({ approval_id: 'a1', resolution: 'expired' })],
    ['user-input/resolved', expect.objectContaining({ request_id: 'q1', outcome: 'expired' })],
  ]);
});

test('whoever ends a session’s work ends what it asks: what is over is expired, the rest cancelled', async () => {
  const held = await aSession();
  const { sessionId } = held;
  await ask(held);
  await passTime(sessionId);
  await question(held);

  expect(await inTransaction(t.db, (tx) => cancelOpenRequests(tx, { tenantId, sessionId, reason: 'over' }))).toBe(2);

  expect((await getApproval(t.db, { tenantId, sessionId, approvalId: 'a1' })).outcome).toBe('expired');
  expect(await getInputRequest(t.db, { tenantId, sessionId, requestId: 'q1' })).toMatchObject({ outcome: 'cancelled', reason: 'over' });
  expect(await inTransaction(t.db, (tx) => cancelOpenRequests(tx, { tenantId, sessionId, reason: 'over' }))).toBe(0);
});

test('a wait ends with the decision, writes nothing and holds no connection; the safety poll finds what no hint has told', async () => {
  const held = await aSession();
  const key = { tenantId, sessionId: held.sessionId, approvalId: 'a1' };
  await ask(held);
  const before = (await log(held.sessionId)).length;

  const controller = new AbortController();
  const gone = waitForApproval(t.db, { ...key, waitMs: 30_000, signal: controller.signal });
  controller.abort();
  expect((await gone).outcome).toBe('pending');
  expect((await waitForApproval(t.db, { ...key, waitMs: 1 })).outcome).toBe('pending');
  const waiting = Array.from({ length: 30 }, () => waitForApproval(t.db, { ...key, waitMs: 30_000 })); // three times the pool
  await approve(key);

  expect(new Set((await Promise.all(waiting)).map(({ outcome }) => outcome))).toEqual(new Set(['approved']));
  expect((await log(held.sessionId)).length).toBe(before + 1);
  const [approvals] = requestProbes;
  const probed = JSON.stringify([tenantId, key.sessionId, 'a1']);
  expect(await approvals?.versionsOf(t.db.sql, [JSON.stringify([tenantId, 'x', 'y']), probed])).toEqual(new Map([[probed, 'approved']]));
});

test('a worker’s own events ask and resolve under the same guards', async () => {
  const held = await aSession();
  const key = { tenantId, sessionId: held.sessionId };
  const append = (epoch: number | undefined, ...events: [string, JsonObject][]) =>
    appendSessionEvents(t.db, { ...key, epoch, events: events.map(([type, data]) => ({ type, data })) });

  await append(held.epoch, ['approval/requested', { approvalId: 'x', toolName: 'bash', timeoutSeconds: 60 }]);
  const twice = await append(held.epoch, ['approval/requested', { approvalId: 'x', toolName: 'bash', timeoutSeconds: 60 }]);
  expect(twice).toMatchObject({ replayed: true, events: [{ sequence: 0 }] });
  await expect(append(undefined, ['approval/requested', { approval_id: 'y' }])).rejects.toEqual(coded('lease_required'));
  await expect(append(undefined, ['approval/resolved', { approval_id: 'x', expected_revision: 2 }])).rejects.toEqual(
    coded('decision_outdated'),
  );
  await append(undefined, ['approval/resolved', { approval_id: 'x', resolution: 'approved' }]);
  await append(
    held.epoch,
    ['user-input/requested', { request_id: 'q', expires_at_ms: Date.now() + 60_000, input_schema: { type: 'string' } }],
    ['user-input/resolved', { request_id: 'q', outcome: 'answered', value: 'yes' }],
  );

  expect(await getApproval(t.db, { ...key, approvalId: 'x' })).toMatchObject({ outcome: 'approved', toolName: 'bash', argumentsDigest: null, reason: 'approval required', actor: {} }); // prettier-ignore
  await expect(assertApproved(t.db, { ...key, approvalId: 'x', arguments: {} })).rejects.toEqual(coded('approval_mismatch'));
  expect(await getInputRequest(t.db, { ...key, requestId: 'q' })).toMatchObject({ outcome: 'answered', value: 'yes', revision: 1 });
});

test('pending requests are listed by page, the oldest first, of a session or of the tenant', async () => {
  const [a, b] = [await aSession(), await aSession()];
  for (const [held, id] of [[a, 'p1'], [b, 'p2'], [a, 'p3']] as const) await ask(held, { approvalId: id }); // prettier-ignore
  for (const [held, id] of [
    [a, 'i1'],
    [b, 'i2'],
  ] as const)
    await question(held, { requestId: id });
  const mine = ({ sessionId }: { sessionId: string }) => [a.sessionId, b.sessionId].includes(sessionId);

  const seen: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await listPendingApprovals(t.db, { tenantId, limit: 1, cursor });
    seen.push(...page.approvals.filter(mine).map(({ approvalId }) => approvalId));
    cursor = page.cursor;
  }
  const ofA = await listPendingApprovals(t.db, { tenantId, sessionId: a.sessionId, limit: 1 });

  expect(seen).toEqual(['p1', 'p2', 'p3']);
  expect(ofA.approvals.map(({ approvalId }) => approvalId)).toEqual(['p1']);
  const rest = await listPendingApprovals(t.db, { tenantId, sessionId: a.sessionId, cursor: ofA.cursor ?? '' });
  expect(rest).toMatchObject({ approvals: [{ approvalId: 'p3' }], cursor: null });
  expect((await listPendingInputs(t.db, { tenantId })).requests.filter(mine).map(({ requestId }) => requestId)).toEqual(['i1', 'i2']);
  expect((await listPendingInputs(t.db, { tenantId: 'other' })).requests).toEqual([]);
  await expect(listPendingApprovals(t.db, { tenantId, cursor: ofA.cursor ?? '' })).rejects.toEqual(coded('invalid_cursor'));
  await expect(listPendingApprovals(t.db, { tenantId: 'other', sessionId: a.sessionId })).rejects.toEqual(coded('session_not_found'));
});

test('a session asks for a bounded number of things at a time', async () => {
  const held = await aSession();
  const events = Array.from({ length: OPEN_REQUESTS_MAX }, (_, i) => ({ type: 'approval/requested', data: { approval_id: `n${i}` } }));
  await appendSessionEvents(t.db, { tenantId, sessionId: held.sessionId, epoch: held.epoch, events });

  await expect(ask(held)).rejects.toEqual(coded('too_many_open_requests', { openMax: OPEN_REQUESTS_MAX }));
  await approve({ sessionId: held.sessionId, approvalId: 'n7' });
  expect((await ask(held)).replayed).toBe(false);
});

test.each<[string, Partial<RequestApproval>, string]>([
  ['neither arguments nor a digest', { arguments: undefined }, 'invalid_request'],
  ['arguments and a digest', { argumentsDigest: 'a'.repeat(64) }, 'invalid_request'],
  ['a digest that is none', { arguments: undefined, argumentsDigest: 'A'.repeat(64) }, 'invalid_request'],
  ['arguments with a NUL', { arguments: { a: 'x\u0000' } }, 'invalid_json'],
  ['arguments with half a surrogate', { arguments: ['\ud800'] }, 'invalid_json'],
  ['arguments that are no JSON', { arguments: new Map() as never }, 'invalid_json'],
  ['arguments too large to show', { arguments: 'x'.repeat(64 * 1024) }, 'payload_too_large'],
  ['an id with a NUL', { approvalId: 'a\u0000' }, 'invalid_request'],
  ['a timeout of nothing', { timeoutSeconds: 0 }, 'invalid_request'],
  ['a timeout of years', { timeoutSeconds: 3e9 }, 'invalid_request'],
  ['an epoch of nothing', { epoch: 0 }, 'invalid_request'],
  ['an unknown field', { surprise: 1 } as never, 'invalid_request'],
])('a request with %s is refused', async (_, over, code) => {
  const held = await aSession();
  await expect(ask(held, over)).rejects.toEqual(coded(code));
  expect(await log(held.sessionId)).toEqual([]);
});

test('texts that no column takes are repaired where a person reads them, and large arguments go by a summary', async () => {
  const held = await aSession();
  await ask(held, { toolName: 'a\u0000b', argumentsSummary: { text: 'x\u0000' }, arguments: 'x'.repeat(100_000), reason: 'why\ud800' });
  await question(held, { prompt: 'a\u0000?', inputSchema: {} });
  const answered = await answer({ sessionId: held.sessionId, requestId: 'q1' }, { 'a b': 'x\u0000', e: 'e\u0301 👩‍👩‍👧' });

  const approval = await getApproval(t.db, { tenantId, sessionId: held.sessionId, approvalId: 'a1' });
  expect(approval).toMatchObject({ toolName: 'a\ufffdb', argumentsSummary: { text: 'x\ufffd' }, reason: 'why\ufffd' });
  expect(answered.request).toMatchObject({ prompt: 'a\ufffd?', value: { 'a b': 'x\ufffd', e: 'e\u0301 👩‍👩‍👧' } });
});

test('a rebuild makes the same rows of the log, whoever stands behind each event', async () => {
  const held = await aSession();
  const key = { tenantId, sessionId: held.sessionId };
  await inTransaction(t.db, async (tx) => {
    const events = [{ type: 'approval/requested', data: { approval_id: 'run', tool_name: 'bash' } }];
    await appendAsServer(tx, key, { events, runId: 'run_1', commandId: 'cmd_1' });
  });
  await ask(held);
  await question(held);
  await approve({ ...key, approvalId: 'a1' });
  await answer({ ...key, requestId: 'q1' }, 's');
  const rows = async () => {
    const all = await t.db.sql
      .query(sql`SELECT row_to_json(a)::text AS row FROM runplane.approvals a WHERE session_id = ${held.sessionId}::text
      UNION ALL SELECT row_to_json(i)::text FROM runplane.input_requests i WHERE session_id = ${held.sessionId}::text ORDER BY 1`);
    return all.map(({ row }) => row);
  };
  const live = await rows();

  await rebuildSession(t.db, key, { owner: 'r' });

  expect(live).toHaveLength(3);
  expect(await rows()).toEqual(live);
});
