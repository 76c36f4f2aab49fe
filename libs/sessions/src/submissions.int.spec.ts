import { OPEN_SUBMISSIONS_MAX, type AcceptSubmission } from '@runplane/contracts';
import { ensureTenant, inTransaction, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import {
  acceptSubmission,
  acquireSessionLease,
  appendSessionEvents,
  countUnfinishedSubmissions,
  createSessions,
  getSubmission,
  getSubmissionReceipt,
  listUnfinishedSubmissions,
  rebuildSession,
} from './index';
import { decideEnd } from './submission-decisions';

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => Promise.all([ensureTenant(t.db.sql, tenantId), ensureTenant(t.db.sql, 'other')]));

const key = (sessionId: string) => ({ tenantId, sessionId });
const create = (id: string) => createSessions(t.db).createSession({ tenantId, header: { id } });
const accept = (sessionId: string, operationId: string, over: Partial<AcceptSubmission> = {}) =>
  acceptSubmission(t.db, { ...key(sessionId), operationId, submission: { kind: 'turn', payload: { text: operationId }, ...over } });
const end = (sessionId: string, operationId: string, over: object = { state: 'completed' }) =>
  createSessions(t.db).endSubmission({ ...key(sessionId), operationId, end: over as { state: 'completed' } });
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });
const queue = async (sessionId: string) => {
  const [row] = await t.db.sql.query(
    sql`SELECT operation_id AS "operationId", state::text AS "state", epoch AS "epoch", attempts AS "attempts" FROM runplane.submission_heads WHERE session_id = ${sessionId}::text`,
  );
  return row;
};
/** As the queue claims it. */
const claim = (sessionId: string, seconds = 60) =>
  t.db.sql.query(sql`UPDATE runplane.submission_heads SET state = 'claimed', owner = 'w', epoch = epoch + 1, attempts = attempts + 1,
    expires_at = runplane.app_now() + ${seconds}::int * interval '1 second', ready_at = runplane.app_now() + ${seconds}::int * interval '1 second' WHERE session_id = ${sessionId}::text`);

describe('a submission', () => {
  test('is accepted with its place in the log and in the feed, and a repeat gets the same receipt', async () => {
    await create('s1');
    const receipt = await accept('s1', 'op-1', { source: { channel: 'web' }, expectedRevision: -1 });
    expect(receipt).toMatchObject({ status: 'accepted', state: 'pending', acceptedSequence: 0, operationId: 'op-1' });
    const again = await accept('s1', 'op-1', { source: { channel: 'web' }, expectedRevision: -1 });
    expect(again).toEqual({ ...receipt, status: 'duplicate' });
    expect(await getSubmissionReceipt(t.db, { ...key('s1'), operationId: 'op-1' })).toEqual(again);
    expect(await getSubmission(t.db, { ...key('s1'), operationId: 'op-1' })).toMatchObject({
      payload: { text: 'op-1' },
      source: { channel: 'web' },
      expectedRevision: -1,
      place: 0,
      attempts: 0,
      claim: null,
      durableCursor: receipt.durableCursor,
    });
    await expect(accept('s1', 'op-1', { payload: { text: 'other' }, source: { channel: 'web' } })).rejects.toEqual(
      coded('idempotency_conflict'),
    );
  });

  test('is refused when the session has moved on, and its repeat is not', async () => {
    await create('s2');
    await accept('s2', 'op-1');
    await expect(accept('s2', 'op-2', { expectedRevision: -1 })).rejects.toEqual(
      coded('revision_conflict', { expectedRevision: -1, lastSequence: 0 }),
    );
    expect(await accept('s2', 'op-2', { expectedRevision: 0 })).toMatchObject({ status: 'accepted' });
    expect(await accept('s2', 'op-2', { expectedRevision: 0 })).toMatchObject({ status: 'duplicate' });
  });

  test('belongs to its session and tenant: the same operation elsewhere is another one', async () => {
    await create('s3');
    await create('s4');
    await accept('s3', 'op');
    expect(await accept('s4', 'op')).toMatchObject({ status: 'accepted' });
    await expect(getSubmission(t.db, { tenantId: 'other', sessionId: 's3', operationId: 'op' })).rejects.toEqual(
      coded('session_not_found'),
    );
    await expect(
      acceptSubmission(t.db, { tenantId: 'other', sessionId: 's3', operationId: 'op', submission: { kind: 'turn' } }),
    ).rejects.toEqual(coded('session_not_found'));
    await expect(getSubmission(t.db, { ...key('s3'), operationId: 'none' })).rejects.toEqual(coded('submission_not_found'));
  });

  test.each([
    ['an empty operation id', '', {}, 'invalid_identifier'],
    ['a kind that is no identifier', 'op', { kind: 'a\u0000' }, 'invalid_request'],
    ['a payload that is too large', 'op', { payload: 'x'.repeat(1024 * 1024) }, 'payload_too_large'],
    ['a source that is no object', 'op', { source: [] }, 'invalid_request'],
    ['a key with NUL', 'op', { payload: { '\u0000': 1 } }, 'invalid_json'],
    ['a revision below the empty log', 'op', { expectedRevision: -2 }, 'invalid_request'],
  ])('with %s is refused, and nothing is written', async (_name, operationId, over, code) => {
    await createSessions(t.db).createSession({ tenantId, header: { id: 'bad' } });
    await expect(accept('bad', operationId, over as Partial<AcceptSubmission>)).rejects.toEqual(coded(code));
    expect(await countUnfinishedSubmissions(t.db, key('bad'))).toEqual({ unfinished: 0, turns: 0 });
  });

  test('keeps every text as it came, and its hash tells texts apart', async () => {
    await create('unicode');
    const payload = { text: 'e\u0301 é 👩‍👩‍👧 𠀀', nul: 'a\u0000b', z: 1, a: [null, '{"a":1}'] };
    await accept('unicode', 'op', { payload });
    const stored = await getSubmission(t.db, { ...key('unicode'), operationId: 'op' });
    expect(JSON.stringify(stored.payload)).toBe(JSON.stringify({ ...payload, nul: 'a\uFFFDb' }));
    expect(await accept('unicode', 'op', { payload })).toMatchObject({ status: 'duplicate' });
    for (const value of [null, 0, '', false]) {
      const operationId = `op-${JSON.stringify(value)}`;
      await accept('unicode', operationId, { payload: value });
      expect(await accept('unicode', operationId, { payload: value })).toMatchObject({ status: 'duplicate' });
      expect(await getSubmission(t.db, { ...key('unicode'), operationId })).toMatchObject({ payload: value });
    }
  });

  test('finds no room in a session that has as many unfinished ones as it may', async () => {
    await create('full');
    await accept('full', 'op-0');
    await t.db.sql.query(sql`UPDATE runplane.session_heads SET open_submissions = ${OPEN_SUBMISSIONS_MAX}::int WHERE session_id = 'full'`);
    await expect(accept('full', 'op-1')).rejects.toEqual(coded('submission_queue_full', { open: OPEN_SUBMISSIONS_MAX }));
    expect(await accept('full', 'op-0')).toMatchObject({ status: 'duplicate' });
    await t.db.sql.query(sql`UPDATE runplane.session_heads SET open_submissions = 1 WHERE session_id = 'full'`);
  });
});

describe('the end of a submission', () => {
  test('makes the next unfinished one the oldest, whichever ends first', async () => {
    await create('q1');
    for (const id of ['a', 'b', 'c', 'd']) await accept('q1', id, { kind: id === 'b' ? 'note' : 'turn' });
    expect(await queue('q1')).toMatchObject({ operationId: 'a' });
    expect(await countUnfinishedSubmissions(t.db, key('q1'))).toEqual({ unfinished: 4, turns: 3 });
    expect(await end('q1', 'b')).toMatchObject({ changed: true, submission: { state: 'completed', endedSequence: 4 } });
    expect(await queue('q1')).toMatchObject({ operationId: 'a' });
    expect(await end('q1', 'a', { state: 'failed', error: 'password=CANARY' })).toMatchObject({ submission: { state: 'failed' } });
    expect((await getSubmission(t.db, { ...key('q1'), operationId: 'a' })).lastError).not.toContain('CANARY');
    expect(await queue('q1')).toMatchObject({ operationId: 'c' });
    await end('q1', 'c');
    await end('q1', 'd');
    expect(await queue('q1')).toBeUndefined();
    expect(await countUnfinishedSubmissions(t.db, key('q1'))).toEqual({ unfinished: 0, turns: 0 });
    await accept('q1', 'e');
    expect(await queue('q1')).toMatchObject({ operationId: 'e' });
  });

  test('comes once: a repeat changes nothing, another end is refused', async () => {
    await create('q2');
    await accept('q2', 'a');
    await end('q2', 'a', { state: 'failed', error: 'x' });
    expect(await end('q2', 'a', { state: 'failed', error: 'y' })).toMatchObject({ changed: false, submission: { lastError: 'x' } });
    await expect(end('q2', 'a')).rejects.toEqual(coded('submission_closed', { state: 'failed' }));
    await expect(end('q2', 'b')).rejects.toEqual(coded('submission_not_found'));
    await expect(end('q2', 'a', { state: 'completed', error: 'x' })).rejects.toEqual(coded('invalid_request'));
    await expect(end('q2', 'a', { state: 'cancelled' })).rejects.toEqual(coded('invalid_request'));
  });

  test('under a claim names its epoch; by hand it takes the claim away', async () => {
    await create('q3');
    await accept('q3', 'a');
    await accept('q3', 'b');
    await claim('q3');
    expect(await getSubmission(t.db, { ...key('q3'), operationId: 'a' })).toMatchObject({ claim: { owner: 'w', epoch: 2 }, attempts: 1 });
    await expect(end('q3', 'a', { state: 'completed', claimEpoch: 1 })).rejects.toEqual(coded('claim_lost', { epoch: 1, currentEpoch: 2 }));
    await expect(end('q3', 'b', { state: 'completed', claimEpoch: 2 })).rejects.toEqual(coded('claim_lost', { currentEpoch: null }));
    expect(await end('q3', 'a', { state: 'completed', claimEpoch: 2 })).toMatchObject({
      changed: true,
      submission: { attempts: 1, claim: null },
    });
    expect(await queue('q3')).toMatchObject({ operationId: 'b', state: 'waiting', epoch: 3, attempts: 0 });
    await claim('q3', -1);
    await expect(end('q3', 'b', { state: 'completed', claimEpoch: 4 })).rejects.toEqual(coded('claim_lost'));
    await claim('q3');
    expect(await end('q3', 'b', { state: 'failed' })).toMatchObject({ changed: true, submission: { attempts: 2 } });
  });

  test.each([
    ['ends what waits', 'pending', undefined, undefined, 'apply'],
    ['repeats an end without a claim', 'completed', undefined, 7, 'keep'],
    ['is refused another end', 'failed', undefined, undefined, 'closed'],
    ['needs the head', 'pending', undefined, 1, 'claim-lost'],
    ['needs the claim of this epoch', 'pending', { operationId: 'a', state: 'claimed', epoch: 2, claimInMs: 1 }, 1, 'claim-lost'],
    ['needs a claim that lives', 'pending', { operationId: 'a', state: 'claimed', epoch: 1, claimInMs: 0 }, 1, 'claim-lost'],
    ['needs the claim of this submission', 'pending', { operationId: 'b', state: 'claimed', epoch: 1, claimInMs: 1 }, 1, 'claim-lost'],
    ['ends under its claim', 'pending', { operationId: 'a', state: 'claimed', epoch: 1, claimInMs: 1 }, 1, 'apply'],
  ] as const)('%s', (_name, state, head, claimEpoch, kind) => {
    expect(decideEnd({ operationId: 'a', state }, head, { state: 'completed', claimEpoch })).toMatchObject({ kind });
  });
});

test('submissions that come through an append obey the same rules', async () => {
  await create('p1');
  const { epoch } = await acquireSessionLease(t.db, { ...key('p1'), owner: 'w' });
  const event = (what: string, id: string, more = {}) => ({ type: `submission/${what}`, data: { operation_id: id, ...more } });
  const append = (...events: { type: string; data: object }[]) =>
    appendSessionEvents(t.db, { ...key('p1'), epoch, events: events as never });
  const accepted = (id: string) => event('accepted', id, { submission_id: `s-${id}`, kind: 'turn' });
  await append(accepted('a'), accepted('b'), event('failed', 'a', { error: 'x' }), accepted('c'), event('requeued', 'a'));
  expect(await queue('p1')).toMatchObject({ operationId: 'b' });
  const { submissions } = await listUnfinishedSubmissions(t.db, key('p1'));
  expect(submissions.map(({ operationId, place }) => [operationId, place])).toEqual([
    ['b', 1],
    ['c', 3],
    ['a', 4],
  ]);
  await expect(append(accepted('b'))).rejects.toEqual(coded('submission_exists'));
  await expect(append(event('completed', 'z'))).rejects.toEqual(coded('submission_not_found'));
  await append(event('completed', 'b'), event('failed', 'c', { error: 'e' }));
  await expect(append(event('failed', 'b'))).rejects.toEqual(coded('submission_closed'));
  await expect(append(event('completed', 'a'), event('completed', 'a'))).rejects.toEqual(coded('submission_closed'));
  await append(event('requeued', 'c'), event('completed', 'a'));
  expect(await queue('p1')).toMatchObject({ operationId: 'c' });

  // Its old claim is over, and it has another place, which the invariants look at.
  await claim('p1');
  const { epoch: claimed } = (await queue('p1')) as { epoch: number };
  await append(event('failed', 'c'), event('requeued', 'c'));
  expect(await queue('p1')).toMatchObject({ operationId: 'c', state: 'waiting', epoch: claimed + 1, attempts: 0 });

  const before = await listUnfinishedSubmissions(t.db, key('p1'));
  expect(await rebuildSession(t.db, key('p1'), { owner: 'r' })).toMatchObject({ changedRows: 0 });
  expect(await listUnfinishedSubmissions(t.db, key('p1'))).toEqual(before);
});

test('submissions are listed page by page, of a session in their order, of a tenant by their time', async () => {
  await create('l1');
  await create('l2');
  for (const id of ['a', 'b', 'c']) await accept('l1', id);
  await accept('l2', 'd', { payload: 'x'.repeat(900_000) });
  const first = await listUnfinishedSubmissions(t.db, { ...key('l1'), limit: 2 });
  expect(first.submissions.map(({ operationId }) => operationId)).toEqual(['a', 'b']);
  const rest = await listUnfinishedSubmissions(t.db, { ...key('l1'), limit: 2, cursor: first.cursor ?? '' });
  expect(rest).toMatchObject({ submissions: [{ operationId: 'c' }], cursor: null });
  await expect(listUnfinishedSubmissions(t.db, { ...key('l2'), cursor: first.cursor ?? '' })).rejects.toEqual(coded('invalid_cursor'));
  const all: string[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await listUnfinishedSubmissions(t.db, { tenantId, limit: 3, cursor });
    all.push(...page.submissions.map((each) => `${each.sessionId}/${each.operationId}`));
    if (page.cursor === null) break;
    cursor = page.cursor;
  }
  expect(new Set(all).size).toBe(all.length);
  expect(all).toEqual(expect.arrayContaining(['l1/a', 'l1/b', 'l1/c', 'l2/d']));
  expect(await listUnfinishedSubmissions(t.db, { tenantId: 'other' })).toEqual({ submissions: [], cursor: null });
});

test('submissions of an older store stand before all others, end by events, and stay in a rebuild', async () => {
  await create('old');
  const bring = (ids: string[]) =>
    createSessions(t.db).importSubmissions({
      ...key('old'),
      submissions: ids.map((id) => ({
        operationId: id,
        submissionId: `s-${id}`,
        kind: 'turn',
        state: id === 'y' ? ('completed' as const) : undefined,
      })),
    });
  expect(await bring(['x', 'y', 'z'])).toEqual({ imported: 3, replayed: false });
  expect(await bring(['x', 'y', 'z'])).toEqual({ imported: 3, replayed: true });
  await expect(bring(['v', 'v'])).rejects.toEqual(coded('invalid_request'));
  const early = { operationId: 'v', submissionId: 's-v', kind: 'turn', createdAt: '0000-12-31T23:59:59Z' };
  await expect(createSessions(t.db).importSubmissions({ ...key('old'), submissions: [early] })).rejects.toEqual(coded('invalid_request'));
  await accept('old', 'a');
  await expect(bring(['w'])).rejects.toEqual(coded('submission_exists'));
  const list = () => listUnfinishedSubmissions(t.db, key('old'));
  expect((await list()).submissions.map(({ operationId, place, durableCursor }) => [operationId, place, durableCursor === null])).toEqual([
    ['x', -3, true],
    ['z', -1, true],
    ['a', 0, false],
  ]);
  expect(await queue('old')).toMatchObject({ operationId: 'x' });
  await end('old', 'x');
  expect(await queue('old')).toMatchObject({ operationId: 'z' });
  await rebuildSession(t.db, key('old'), { owner: 'r' });
  expect((await list()).submissions.map(({ operationId }) => operationId)).toEqual(['z', 'a']);
  expect(await queue('old')).toMatchObject({ operationId: 'z' });
});

test('in a transaction of one’s own a submission comes and ends with the rest, or not at all', async () => {
  await create('tx');
  const work = (fails: boolean) =>
    inTransaction(t.db, async (tx) => {
      await acceptSubmission(tx, { ...key('tx'), operationId: 'a', submission: { kind: 'turn' } });
      const again = await acceptSubmission(tx, { ...key('tx'), operationId: 'a', submission: { kind: 'turn' } });
      if (fails) throw new Error('no');
      return again.status;
    });
  await expect(work(true)).rejects.toThrow('no');
  await expect(getSubmission(t.db, { ...key('tx'), operationId: 'a' })).rejects.toEqual(coded('submission_not_found'));
  expect(await work(false)).toBe('duplicate');
});
