import { SUBMISSION_ATTEMPTS_MAX, type ClaimedSubmission } from '@runplane/contracts';
import { inTransaction, openDb, sql, type Tx } from '@runplane/database';
import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import {
  claimSubmissions,
  createQueue,
  failExhaustedSubmissionsOnce,
  releaseSubmission,
  renewSubmission,
  renewSubmissions,
  requeueSubmission,
  settleSubmissions,
} from '@runplane/queue';
import { aClaimedSubmission, aKind, aSubmission, aWorker, passSubmissionTime } from '@runplane/queue/testing';
import { createRuns, deleteSession } from '@runplane/runs';
import { TENANT } from '@runplane/runs/testing';
import { endSubmission, getSubmission } from '@runplane/sessions';
import { ending, hold, lockRow, meet, meetAborted, useRaces } from '../support/races';

// Claims of submissions, where they meet each other and what else moves the queue of a session: the row of its head decides, and who waited for it
// looks at it, and at the clock, again.

const t = useRaces();
const tenantId = TENANT;
const claim = (kind: string, limit = 10) => claimSubmissions(t.db, { tenantId, kind, owner: aWorker(), limit });
const names = (claimed: readonly { operationId: string }[]) => claimed.map(({ operationId }) => operationId);
const completion = (claimed: ClaimedSubmission) => ({ ...claimed, end: { state: 'completed' as const, claimEpoch: claimed.epoch } });
const exhaust = ({ sessionId }: { sessionId: string }) =>
  t.db.sql.query(
    sql`UPDATE runplane.submission_heads SET attempts = ${SUBMISSION_ATTEMPTS_MAX}::int WHERE session_id = ${sessionId}::text`,
  );
const lockHeadOf = ({ sessionId }: { sessionId: string }) => lockRow(t.url, 'submission_heads', `session_id = '${sessionId}'`);
const endTime = ({ sessionId }: { sessionId: string }) =>
  `UPDATE runplane.submission_heads SET expires_at = runplane.app_now(), ready_at = runplane.app_now() WHERE session_id = '${sessionId}'`;

test('of claimers at the same moment each gets others, and none of two in one session', async () => {
  const kind = aKind();
  for (let i = 0; i < 12; i += 1) {
    const { sessionId } = await aSubmission(t.db, { operationId: `first-${i}`, kind });
    await aSubmission(t.db, { sessionId, operationId: `second-${i}`, kind });
  }
  const all = (await Promise.all(Array.from({ length: 8 }, () => claim(kind, 2)))).flat();
  all.push(...(await claim(kind, 100)));
  expect(names(all).sort()).toEqual(Array.from({ length: 12 }, (_, i) => `first-${i}`).sort());
  expect(await claim(kind)).toEqual([]);
});

const MOVES: Record<string, { work: (own: ClaimedSubmission) => (tx: Tx) => Promise<unknown>; then: string[] }> = {
  'an end by hand': { work: (own) => (tx) => endSubmission(tx, { ...own, end: { state: 'completed' } }), then: ['next'] },
  'a failure': { work: (own) => (tx) => endSubmission(tx, { ...own, end: { state: 'failed', claimEpoch: own.epoch } }), then: ['next'] },
  'a hand-back': { work: (own) => (tx) => releaseSubmission(tx, own), then: ['own'] },
};
test.each(Object.entries(MOVES))(
  'a claim goes past a head that %s is moving, and finds what stands there afterwards',
  async (_name, { work, then }) => {
    const own = await aClaimedSubmission(t.db, { operationId: 'own' });
    await aSubmission(t.db, { sessionId: own.sessionId, operationId: 'next', kind: own.kind });
    const held = await hold(t.db, work(own));
    expect(await claim(own.kind)).toEqual([]);
    await held.commit();
    expect(names(await claim(own.kind))).toEqual(then);
  },
);

describe('a claim that has looked before another has moved the head', () => {
  /** The claim stops in the middle of its statement, at the clock, until `meanwhile` is done. */
  async function claimSlowly(
    kind: string,
    meanwhile: () => Promise<unknown>,
    behind: () => Promise<unknown> = () => Promise.resolve(),
  ): Promise<ClaimedSubmission[]> {
    const slow = await openDb({ url: t.url, applicationName: 'race-slow' });
    const beside = await openClient(t.url);
    const { rows } = await beside.query(`SELECT pg_get_functiondef('runplane.app_now'::regproc) AS clock`);
    await beside.query(`CREATE OR REPLACE FUNCTION runplane.app_now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN
      IF current_setting('application_name') = 'race-slow' THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF; RETURN clock_timestamp(); END $$`);
    try {
      await beside.query('SELECT pg_advisory_lock(4711)');
      const query: typeof slow.sql.query = async (statement) => {
        const found = await slow.sql.query(statement);
        await behind();
        return found;
      };
      const claimed = claimSubmissions({ ...slow, sql: { query } }, { tenantId, kind, owner: aWorker(), limit: 10 });
      await waitUntilBlocked(t.db, 1);
      await meanwhile();
      await beside.query('SELECT pg_advisory_unlock(4711)');
      return await claimed;
    } finally {
      await beside.query((rows[0] as { clock: string }).clock);
      await beside.end();
      await slow.close();
    }
  }

  test('takes what stands there now, with its text; nothing of it where another claim came first', async () => {
    const kind = aKind();
    const old = await aSubmission(t.db, { operationId: 'old', kind });
    const taken = await claimSlowly(kind, async () => {
      await endSubmission(t.db, { ...old, end: { state: 'completed' } });
      await aSubmission(t.db, { sessionId: old.sessionId, operationId: 'new', kind, payload: { n: 2 } });
    });
    expect(taken).toEqual([]); // the old row of the head is gone, the new one was not there
    expect(await claim(kind)).toMatchObject([{ operationId: 'new', attempts: 1 }]);

    const other = aKind();
    const first = await aSubmission(t.db, { operationId: 'first', kind: other });
    const moved = await claimSlowly(other, async () => {
      await aSubmission(t.db, { sessionId: first.sessionId, operationId: 'second', kind: other, payload: { n: 2 }, source: { s: 1 } });
      await endSubmission(t.db, { ...first, end: { state: 'completed' } });
    });
    expect(moved).toMatchObject([
      { operationId: 'second', payload: { n: 2 }, source: { s: 1 }, attempts: 1, attemptsLeft: 9, acceptedSequence: 1 },
    ]);

    await endSubmission(t.db, completion(moved[0] as ClaimedSubmission));
    await aSubmission(t.db, { sessionId: first.sessionId, operationId: 'third', kind: other });
    expect(await claimSlowly(other, () => claim(other))).toEqual([]);
  });

  test('gives the others where a session is deleted before its text was read', async () => {
    const kind = aKind();
    const [gone, other] = [await aSubmission(t.db, { kind }), await aSubmission(t.db, { operationId: 'other', kind })];
    const claimed = await claimSlowly(
      kind,
      async () => {
        await aSubmission(t.db, { sessionId: gone.sessionId, kind });
        await endSubmission(t.db, { ...gone, end: { state: 'completed' } });
      },
      () => createRuns(t.db).deleteSession({ tenantId, sessionId: gone.sessionId }),
    );
    expect(claimed).toMatchObject([{ sessionId: other.sessionId, operationId: 'other' }]);
  });
});

test('a renewal does not wait for an end that is under way, and tells what became of it', async () => {
  const [a, b] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
  const renewed = (own: ClaimedSubmission) => ending(renewSubmission(t.db, { ...own, leaseMs: 60_000 }));
  const [endingA, endingB] = [
    await hold(t.db, (tx) => endSubmission(tx, completion(a))),
    await hold(t.db, (tx) => endSubmission(tx, completion(b))),
  ];
  const other = await aClaimedSubmission(t.db);
  const [ofA, ofB] = [renewed(a), renewed(b)];
  expect(await renewed(other)).toMatchObject({ value: { claimRemainingMs: 60_000 } });
  await endingA.commit();
  await endingB.rollBack();
  expect(await ofA).toMatchObject({ code: 'claim_lost' });
  expect(await ofB).toMatchObject({ value: { claimRemainingMs: 60_000 } });
});

test('a renewal of a head that somebody holds for long tells what remains, and the others are prolonged', async () => {
  const impatient = await openDb({ url: t.url, applicationName: 'race-impatient', lockTimeoutMs: 50 });
  const [held, other] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
  const beside = await lockHeadOf(held);
  const claims = [held, other].map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch }));
  const verdicts = await renewSubmissions(impatient, { tenantId, claims, leaseMs: 60_000 });
  expect(verdicts).toMatchObject([{ verdict: 'ok' }, { verdict: 'ok', claimRemainingMs: 60_000 }]);
  expect(verdicts[0]?.claimRemainingMs).toBeLessThanOrEqual(30_000);
  await beside.query(endTime(held));
  await beside.release();
  await impatient.close();
});

test.each([
  ['a renewal in a transaction', (own: ClaimedSubmission) => inTransaction(t.db, (tx) => renewSubmission(tx, { ...own, leaseMs: 60_000 }))],
  ['a release', (own: ClaimedSubmission) => releaseSubmission(t.db, own)],
  ['an end', (own: ClaimedSubmission) => endSubmission(t.db, completion(own))],
])(
  '%s that waits for the head is judged by the clock after the wait',
  async (_name, call: (own: ClaimedSubmission) => Promise<unknown>) => {
    const own = await aClaimedSubmission(t.db);
    const beside = await lockHeadOf(own);
    const late = ending(call(own));
    await waitUntilBlocked(t.db, 1);
    await beside.query(endTime(own));
    await beside.release();
    expect(await late).toMatchObject({ code: 'claim_lost' });
    expect(await claim(own.kind)).toMatchObject([{ operationId: own.operationId, attempts: 2 }]);
  },
);

test('a release and an end under the same claim: whoever comes first has decided', async () => {
  const [a, b, c] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
  const released = (own: ClaimedSubmission) => releaseSubmission(t.db, own);
  const [, late] = await meet(
    t.db,
    (tx) => endSubmission(tx, completion(a)),
    () => released(a),
  );
  expect(late).toMatchObject({ code: 'claim_lost' });
  const [, ended] = await meet(
    t.db,
    (tx) => releaseSubmission(tx, b),
    () => endSubmission(t.db, completion(b)),
  );
  expect(ended).toMatchObject({ code: 'claim_lost' });
  expect(
    await meetAborted(
      t.db,
      (tx) => endSubmission(tx, completion(c)),
      () => released(c),
    ),
  ).toMatchObject({ value: { state: 'pending', attempts: 0 } });
});

test('an end that is told twice at once is told once', async () => {
  const own = await aClaimedSubmission(t.db);
  const settlement = { sessionId: own.sessionId, operationId: own.operationId, epoch: own.epoch, outcome: 'completed' as const };
  const [, second] = await meet(
    t.db,
    (tx) => endSubmission(tx, completion(own)),
    () => settleSubmissions(t.db, { tenantId, settlements: [settlement] }),
  );
  expect(second).toMatchObject({ value: [{ verdict: 'replayed' }] });
});

test('a re-queue that meets a claim: the one that waits at the head comes first, and one that comes alone is found once it is there', async () => {
  const failed = await aClaimedSubmission(t.db);
  const { kind, sessionId } = failed;
  const next = await aSubmission(t.db, { sessionId, operationId: 'next', kind });
  await endSubmission(t.db, { ...failed, end: { state: 'failed', claimEpoch: failed.epoch } });
  const held = await hold(t.db, (tx) => requeueSubmission(tx, failed));
  expect(await claim(kind)).toEqual([]);
  await held.commit();
  const [claimed] = await claim(kind);
  expect(claimed).toMatchObject({ operationId: 'next' });
  expect(await claim(kind)).toEqual([]);
  await endSubmission(t.db, { ...next, end: { state: 'failed', claimEpoch: claimed?.epoch } });
  await endSubmission(t.db, { ...failed, end: { state: 'failed' } });
  const alone = await hold(t.db, (tx) => requeueSubmission(tx, next));
  expect(await claim(kind)).toEqual([]);
  const twin = ending(createQueue(t.db).requeueSubmission(next));
  await waitUntilBlocked(t.db, 1);
  await alone.commit();
  expect(await twin).toMatchObject({ value: { changed: false } });
  expect(names(await claim(kind))).toEqual(['next']);
});

test('the failing of what was tried too often looks again: what has ended, or was handed back, meanwhile is left alone', async () => {
  const [done, back, given] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
  for (const own of [done, back, given]) await exhaust(own);
  const swept = async () => (await failExhaustedSubmissionsOnce(t.db)).changed;

  await passSubmissionTime(t.db, done);
  const held = await hold(t.db, (tx) => endSubmission(tx, { ...done, end: { state: 'completed' } }));
  const first = swept();
  await waitUntilBlocked(t.db, 1);
  await held.commit();
  expect(await first).toBe(0);
  expect(await getSubmission(t.db, done)).toMatchObject({ state: 'completed' });

  await passSubmissionTime(t.db, back);
  const beside = await lockHeadOf(back);
  const second = swept();
  await waitUntilBlocked(t.db, 1);
  await beside.query(
    `UPDATE runplane.submission_heads SET attempts = attempts - 1, state = 'waiting', owner = NULL, expires_at = NULL WHERE session_id = '${back.sessionId}'`,
  );
  await beside.release();
  expect(await second).toBe(0);

  await passSubmissionTime(t.db, given);
  const third = await lockHeadOf(given);
  const failing = swept();
  await waitUntilBlocked(t.db, 1);
  const late = ending(endSubmission(t.db, completion(given)));
  await waitUntilBlocked(t.db, 2);
  await third.release();
  expect([await failing, await late]).toMatchObject([1, { code: 'submission_closed', data: { state: 'failed' } }]);
});

test('the deletion of a session that meets a claim and its end: nothing of it is claimed any more', async () => {
  const own = await aClaimedSubmission(t.db);
  const waiting = await aSubmission(t.db, { kind: own.kind });
  const held = await hold(t.db, (tx) => deleteSession(tx, { tenantId, sessionId: waiting.sessionId }));
  expect(await claim(own.kind)).toEqual([]);
  await held.commit();
  expect(await claim(own.kind)).toEqual([]);
  const [, late] = await meet(
    t.db,
    (tx) => deleteSession(tx, { tenantId, sessionId: own.sessionId }),
    () => endSubmission(t.db, completion(own)),
  );
  expect(late).toMatchObject({ code: 'session_deleted' });
  expect(await ending(createQueue(t.db).requeueSubmission(own))).toMatchObject({ code: 'session_deleted' });
  expect(await ending(createRuns(t.db).deleteSession({ tenantId, sessionId: own.sessionId }))).toMatchObject({ value: { changed: false } });
});
