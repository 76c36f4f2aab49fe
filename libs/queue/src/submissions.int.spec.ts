import { SUBMISSION_ATTEMPTS_MAX, SUBMISSION_BACKOFF_MS_MAX } from '@runplane/contracts';
import { inTransaction, openDb, sql, type Sql } from '@runplane/database';
import { openClient, useDatabase, withClockAt } from '@runplane/database/testing';
import { createRuns, eraseDeletedOnce } from '@runplane/runs';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import {
  acquireSessionLease,
  createSessions,
  endSubmission,
  forkSession,
  getSubmission,
  markSubmissionsEnded,
  readSessionEvents,
  rebuildSession,
} from '@runplane/sessions';
import {
  claimSubmissions,
  createQueue,
  failExhaustedSubmissionsOnce,
  releaseSubmission,
  renewSubmission,
  renewSubmissions,
  requeueSubmission,
  settleSubmissions,
  waitForSubmissions,
  type ClaimSubmissionsInput,
} from './index';
import { waitForClaims } from './wait-for-claims';
import { claimHeads } from './submission-claim.sql';
import { aClaimedSubmission, aKind, aSubmission, aWorker, passSubmissionTime } from './testing';

const t = useDatabase();
const tenantId = TENANT;
let kind = '';
beforeAll(async () => {
  await makeTenants(t.db, 'other');
  await t.db.hub.start();
});
beforeEach(() => {
  kind = aKind();
});

const claim = (over: Partial<ClaimSubmissionsInput> = {}, db = t.db) => claimSubmissions(db, { tenantId, kind, owner: aWorker(), ...over });
const complete = (claimed: { tenantId: string; sessionId: string; operationId: string; epoch: number }) =>
  endSubmission(t.db, { ...claimed, end: { state: 'completed', claimEpoch: claimed.epoch } });
const names = (claimed: readonly { operationId: string }[]) => claimed.map(({ operationId }) => operationId);
const eventsOf = async (sessionId: string) =>
  (await readSessionEvents(t.db, { tenantId, sessionId })).events.map(({ type }) => type.replace('submission/', ''));
const headOf = async (sessionId: string, db = t.db) =>
  (
    await db.sql.query(
      sql`SELECT operation_id AS "operationId", state::text AS "state", epoch AS "epoch", attempts AS "attempts", last_error AS "lastError",
        runplane.ms_until(ready_at, runplane.app_now()) AS "readyInMs" FROM runplane.submission_heads WHERE session_id = ${sessionId}::text`,
    )
  )[0];
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });

describe('a claim', () => {
  test('is of the oldest unfinished submission of a session, one at a time, and gives what its holder needs', async () => {
    const first = await aSubmission(t.db, { operationId: 'a', kind, payload: { n: 1 }, source: { channel: 'web' } });
    await aSubmission(t.db, { sessionId: first.sessionId, operationId: 'b', kind });
    const [claimed] = await claim();
    expect(claimed).toMatchObject({
      ...{ tenantId, sessionId: first.sessionId, operationId: 'a', kind, payload: { n: 1 }, source: { channel: 'web' }, place: 0 },
      ...{ epoch: 2, attempts: 1, attemptsLeft: SUBMISSION_ATTEMPTS_MAX - 1, acceptedSequence: 0, expectedRevision: null, lastError: null },
    });
    expect(claimed?.claimRemainingMs).toBeGreaterThan(29_000);
    expect(await claim()).toEqual([]);
    expect(await getSubmission(t.db, first)).toMatchObject({ state: 'pending', attempts: 1, claim: { epoch: 2 } });
    expect(await eventsOf(first.sessionId)).toEqual(['accepted', 'accepted']);

    expect(await complete(claimed!)).toMatchObject({ changed: true, submission: { state: 'completed', attempts: 1, claim: null } });
    expect(names(await claim())).toEqual(['b']);
  });

  test('goes by the time since which sessions are ready, over tenants and kinds as asked for, and to nobody else’s', async () => {
    for (const operationId of ['1', '2', '3']) await aSubmission(t.db, { operationId, kind });
    await aSubmission(t.db, { operationId: 'other', kind, tenantId: 'other' });
    expect(names(await claim({ limit: 2 }))).toEqual(['1', '2']);
    expect(names(await claim({ tenantId: 'other', kind: undefined, limit: 100 }))).toEqual(['other']);
    expect(names(await claimSubmissions(t.db, { kind, owner: aWorker(), limit: 5 }))).toEqual(['3']);
    await expect(claimSubmissions(t.db, { owner: 'w' } as never)).rejects.toThrow('names a kind');
    for (const bad of [{ limit: 0 }, { limit: 101 }, { leaseMs: 1 }, { owner: '' }, { kind: 'a\u0000' }])
      await expect(claim(bad)).rejects.toEqual(coded('invalid_request'));
  });

  test('that has ended passes to the next claimer under a greater epoch, is counted, and tells so', async () => {
    const lost = await aClaimedSubmission(t.db, { kind });
    await passSubmissionTime(t.db, lost);
    expect(await getSubmission(t.db, { ...lost })).toMatchObject({ claim: null, attempts: 1 });
    const [again] = await claim();
    expect(again).toMatchObject({ operationId: lost.operationId, epoch: lost.epoch + 1, attempts: 2 });
    expect(again?.lastError).toMatch(/ended without a word/);
    await expect(renewSubmission(t.db, { ...lost, leaseMs: 5_000 })).rejects.toEqual(coded('claim_lost', { currentEpoch: again?.epoch }));
    await expect(releaseSubmission(t.db, { ...lost })).rejects.toEqual(coded('claim_lost'));
    await expect(complete(lost)).rejects.toEqual(coded('claim_lost', { epoch: lost.epoch, currentEpoch: again?.epoch }));
    expect(await complete(again!)).toMatchObject({ changed: true });
  });

  test('takes no more than asked for, under every plan', async () => {
    for (let i = 0; i < 6; i += 1) await aSubmission(t.db, { kind });
    for (const off of ['enable_hashjoin', 'enable_material', 'enable_nestloop', 'enable_mergejoin', 'enable_indexscan', 'enable_sort']) {
      const given = await inTransaction(t.db, async (tx) => {
        await tx.query(sql`SELECT set_config(${off}::text, 'off', true) AS "off"`);
        return claimHeads(tx, {
          scope: { tenantId, kind },
          owner: 'w',
          leaseMs: 60_000,
          limit: 1,
          leaseOwner: off.length % 2 === 0 ? 'w' : undefined,
        });
      });
      expect(given).toHaveLength(1);
    }
    expect(await claim({ limit: 10 })).toEqual([]);
  });

  test('passes a head over that somebody holds, and takes nothing behind it', async () => {
    const held = await aSubmission(t.db, { operationId: 'held', kind });
    await aSubmission(t.db, { sessionId: held.sessionId, operationId: 'behind', kind });
    await aSubmission(t.db, { operationId: 'free', kind });
    const beside = await openClient(t.url);
    await beside.query(`BEGIN; SELECT FROM runplane.submission_heads WHERE session_id = '${held.sessionId}' FOR UPDATE`);
    expect(names(await claim({ limit: 5 }))).toEqual(['free']);
    await beside.query('ROLLBACK');
    await beside.end();
    expect(names(await claim({ limit: 5 }))).toEqual(['held']);
  });

  test('leaves the rest of a batch whose payloads would make the answer too large', async () => {
    for (let i = 0; i < 7; i += 1) await aSubmission(t.db, { operationId: `large-${i}`, kind, payload: 'x'.repeat(900_000) });
    const first = await claim({ limit: 100 });
    expect(first.length).toBeLessThan(7);
    expect(first.length + (await claim({ limit: 100 })).length).toBe(7);
  });

  test('for a lease owner looks at sessions whose lease is free or its own, and keeps the others from nobody', async () => {
    const [busy, own, free, over] = [
      await aSubmission(t.db, { kind }),
      await aSubmission(t.db, { kind }),
      await aSubmission(t.db, { kind }),
      await aSubmission(t.db, { kind }),
    ];
    const lease = ({ sessionId }: { sessionId: string }, owner: string) => acquireSessionLease(t.db, { tenantId, sessionId, owner });
    await lease(busy, 'somebody');
    await lease(own, 'me');
    await lease(over, 'somebody');
    await t.db.sql.query(
      sql`UPDATE runplane.session_heads SET lease_expires_at = runplane.app_now() WHERE session_id = ${over.sessionId}::text`,
    );
    expect(names(await claim({ limit: 2, leaseOwner: 'me' }))).toEqual(names([own, free]));
    expect(names(await claim({ limit: 2, leaseOwner: 'me' }))).toEqual(names([over]));
    expect(await claim({ leaseOwner: 'me' })).toEqual([]);
    expect(await headOf(busy.sessionId)).toMatchObject({ state: 'waiting', attempts: 0, epoch: 1 });
    // Whoever has asked in vain has not put it off for its own worker, who asks now.
    expect(names(await claim({ leaseOwner: 'somebody' }))).toEqual(names([busy]));
  });

  test('for a lease owner finds what stands behind sessions that others write', async () => {
    for (const { sessionId } of [await aSubmission(t.db, { kind }), await aSubmission(t.db, { kind })])
      await acquireSessionLease(t.db, { tenantId, sessionId, owner: 'somebody' });
    const behind = await aSubmission(t.db, { kind });
    const look = () =>
      claimHeads(t.db.sql, { scope: { tenantId, kind }, owner: 'w', leaseMs: 60_000, limit: 1, leaseOwner: 'me', looksMax: 2 });
    expect(await look()).toEqual([]);
    expect(await look()).toMatchObject([{ operationId: behind.operationId }]);
  });
});

describe('a holder', () => {
  test('prolongs claims, each by its epoch; a lost one does not touch the others', async () => {
    const [a, b] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
    await passSubmissionTime(t.db, b);
    const none = { sessionId: 'none', operationId: 'none', epoch: 1 };
    const nobody = { ...a, operationId: 'none' };
    const named = [none, b, a].map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch }));
    expect(await renewSubmissions(t.db, { tenantId, claims: named, leaseMs: 600_000 })).toMatchObject([
      { sessionId: 'none', verdict: 'not_found', state: null },
      { sessionId: b.sessionId, verdict: 'claim_lost', state: 'pending', currentEpoch: b.epoch },
      { sessionId: a.sessionId, verdict: 'ok', claimRemainingMs: 600_000 },
    ]);
    expect(await claim({ kind: a.kind })).toEqual([]);
    await expect(renewSubmission(t.db, { ...nobody, leaseMs: 5_000 })).rejects.toEqual(coded('submission_not_found'));
    await expect(renewSubmission(t.db, { ...a, tenantId: 'other', leaseMs: 5_000 })).rejects.toEqual(coded('submission_not_found'));
    await expect(renewSubmissions(t.db, { tenantId, claims: [named[2]!, named[2]!] })).rejects.toEqual(coded('invalid_request'));
    expect(await inTransaction(t.db, (tx) => renewSubmission(tx, { ...a, leaseMs: 5_000 }))).toMatchObject({ claimRemainingMs: 5_000 });
  });

  test('gives back what it has not begun: the try does not count, and the next claim may follow at once', async () => {
    const claimed = await aClaimedSubmission(t.db, { kind });
    const given = await releaseSubmission(t.db, { ...claimed });
    expect(given).toMatchObject({ state: 'pending', attempts: 0, claim: null, lastError: null });
    expect(await releaseSubmission(t.db, { ...claimed })).toEqual(given);
    const [again] = await claim();
    expect(again).toMatchObject({ attempts: 1, epoch: claimed.epoch + 2 });
    await expect(releaseSubmission(t.db, { ...claimed })).rejects.toEqual(coded('claim_lost'));
    expect(await createQueue(t.db).releaseSubmission({ ...again!, delayMs: 60_000 })).toMatchObject({ attempts: 0 });
    expect(await claim()).toEqual([]);
    expect((await headOf(claimed.sessionId))?.['readyInMs']).toBeGreaterThan(50_000);
  });

  test('gives back what has failed: the pause doubles up to five minutes, the error stays, and the tenth try was the last', async () => {
    const { sessionId, operationId } = await aSubmission(t.db, { kind });
    await aSubmission(t.db, { sessionId, operationId: 'next', kind });
    const still = await openDb({ url: withClockAt(t.url, new Date(Date.now() + 1_000)) }); // no pause passes by itself
    const waits: number[] = [];
    for (let attempt = 1; attempt <= SUBMISSION_ATTEMPTS_MAX; attempt += 1) {
      const [claimed] = await claim({}, still);
      expect(claimed).toMatchObject({ attempts: attempt, attemptsLeft: SUBMISSION_ATTEMPTS_MAX - attempt });
      await releaseSubmission(still, { ...claimed!, error: `no. ${attempt}: token=sk-ant-api03-abcdefghijklmnopqrstuvwx` });
      waits.push(Number((await headOf(sessionId, still))?.['readyInMs']));
      expect(await claim({}, still)).toEqual([]);
      await passSubmissionTime(still, { sessionId });
    }
    await still.close();
    expect(waits[0]).toBe(1_000);
    expect(waits[8]).toBeGreaterThan(100_000);
    expect(Math.max(...waits)).toBeLessThanOrEqual(SUBMISSION_BACKOFF_MS_MAX);
    expect(waits[9]).toBeLessThanOrEqual(0);
    expect(await claim()).toEqual([]);

    expect((await failExhaustedSubmissionsOnce(t.db)).changed).toBeGreaterThanOrEqual(1);
    expect(await getSubmission(t.db, { tenantId, sessionId, operationId })).toMatchObject({ state: 'failed', attempts: 10 });
    const { lastError } = await getSubmission(t.db, { tenantId, sessionId, operationId });
    expect(lastError).toMatch(/^given up after 10 attempts: no\. 10: /);
    expect(lastError).not.toContain('abcdefghijklmnop');
    expect(await eventsOf(sessionId)).toEqual(['accepted', 'accepted', 'failed']);
    expect(names(await claim())).toEqual(['next']);
  });

  test('settles many at once, each with a verdict of its own, and may do so again', async () => {
    const [a, b, c, lost, ended] = [
      await aClaimedSubmission(t.db),
      await aClaimedSubmission(t.db),
      await aClaimedSubmission(t.db),
      await aClaimedSubmission(t.db),
      await aClaimedSubmission(t.db),
    ];
    await passSubmissionTime(t.db, lost);
    await complete(ended);
    const named = ({ sessionId, operationId, epoch }: typeof a) => ({ sessionId, operationId, epoch });
    const settlements = [
      { ...named(a), outcome: 'completed' as const },
      { ...named(b), outcome: 'failed' as const, error: 'broken' },
      { ...named(c), outcome: 'released' as const },
      { ...named(lost), outcome: 'completed' as const },
      { ...named(ended), outcome: 'failed' as const },
      { sessionId: 'none', operationId: 'x', epoch: 1, outcome: 'failed' as const },
    ];
    const words = async () => (await settleSubmissions(t.db, { tenantId, settlements })).map(({ verdict }) => verdict);
    expect(await words()).toEqual(['ok', 'ok', 'ok', 'claim_lost', 'closed', 'not_found']);
    expect(await words()).toEqual(['replayed', 'replayed', 'replayed', 'claim_lost', 'closed', 'not_found']);
    expect(await getSubmission(t.db, { ...b })).toMatchObject({ state: 'failed', lastError: 'broken' });
    expect(await eventsOf(b.sessionId)).toEqual(['accepted', 'failed']);
    for (const bad of [{ outcome: 'completed', error: 'x' }, { outcome: 'failed', delayMs: 1 }, { outcome: 'lost' }])
      await expect(settleSubmissions(t.db, { tenantId, settlements: [{ ...named(a), ...bad } as never] })).rejects.toEqual(
        coded('invalid_request'),
      );
  });

  test('ends many of sessions with one statement, which writes what the end of one writes, and passes over what it must not end', async () => {
    const made = async (over: Parameters<typeof aSubmission>[1], behind: boolean) => {
      const claimed = await aClaimedSubmission(t.db, { operationId: 'first', ...over });
      if (behind) await aSubmission(t.db, { sessionId: claimed.sessionId, operationId: 'behind', kind: 'turn' });
      return claimed;
    };
    const ENDS = [
      [{}, false, { state: 'completed' }],
      [{}, true, { state: 'completed' }],
      [{ kind: 'turn' }, true, { state: 'failed', error: 'broken\nin two lines' }],
      [{ kind: 'turn' }, false, { state: 'failed' }],
    ] as const;
    const endOf = ({ sessionId, operationId, epoch }: Awaited<ReturnType<typeof made>>, i: number) => ({
      sessionId,
      operationId,
      end: { state: 'completed' as 'completed' | 'failed', ...ENDS[i]?.[2], claimEpoch: epoch },
    });
    const together: Awaited<ReturnType<typeof made>>[] = [];
    const alone: Awaited<ReturnType<typeof made>>[] = [];
    for (const [over, behind] of ENDS) for (const side of [together, alone]) side.push(await made(over, behind));
    const [over, held, other] = [await made({}, false), await made({}, false), await made({}, false)];
    await passSubmissionTime(t.db, over);
    const holder = await openClient(t.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.session_heads WHERE session_id = $1 FOR NO KEY UPDATE', [held.sessionId]);

    const ends = [...together, over, held, { ...other, epoch: 7 }, { ...other, sessionId: 'none' }].map(endOf);
    const view = { name: 'ends', version: 1, initial: () => ({}), touches: () => true, apply: (state: object) => state };
    const withView = { ...t.db, options: { ...t.db.options, projections: [view] } } as unknown as typeof t.db;
    expect(await markSubmissionsEnded(withView, { tenantId, ends })).toEqual(new Set());
    expect(await markSubmissionsEnded(t.db, { tenantId, ends })).toEqual(new Set(ENDS.keys()));
    await holder.query('ROLLBACK');
    await holder.end();
    expect(await markSubmissionsEnded(t.db, { tenantId, ends })).toEqual(new Set([5]));
    const beforeWrite = async (text: string) =>
      text.includes('head_moved AS') ? aSubmission(t.db, { sessionId: other.sessionId }) : undefined;
    const query = async (statement: Sql) => (await beforeWrite(statement.text), t.db.sql.query(statement));
    expect(await markSubmissionsEnded({ ...t.db, sql: { query } }, { tenantId, ends: [endOf(other, 0)] })).toEqual(new Set());
    for (const [i, claimed] of alone.entries()) await endSubmission(t.db, { tenantId, ...endOf(claimed, i) });

    const DIFFER = [
      'session_id',
      'partition_key',
      'shard',
      'stream_id',
      'tx',
      'position',
      'last_tx',
      'event_tx',
      'event_position',
      'event_id',
      'submission_id',
    ];
    const TIMES = ['created_at', 'updated_at', 'time', 'ended_at', 'ready_at', 'incarnation', 'header', 'kind', 'content_hash'];
    const rowsOf = (side: readonly { sessionId: string }[]) =>
      Promise.all(
        ['submissions', 'submission_heads', 'session_heads', 'session_events', 'outbox_events'].flatMap((table) =>
          side.map(async ({ sessionId }) => {
            const { rows } = await t.db.pool.query<{ row: string }>(
              `SELECT (to_jsonb(r) - $2::text[] - $3::text[])::text AS row FROM runplane.${table} r WHERE session_id = $1 ORDER BY 1`,
              [sessionId, DIFFER, TIMES],
            );
            return rows.map(({ row }) => row.replaceAll(/kind-[-0-9a-f]+|sub_[-0-9a-f]+/g, ''));
          }),
        ),
      );
    expect(await rowsOf(together)).toEqual(await rowsOf(alone));
    for (const { sessionId } of [...together, ...alone])
      expect(await eventsOf(sessionId)).toHaveLength(
        (await t.db.pool.query('SELECT FROM runplane.outbox_events WHERE session_id = $1', [sessionId])).rowCount ?? 0,
      );
  });

  test('that is gone after the last try leaves it to be failed; a last try that is under way is left alone', async () => {
    const [gone, working] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
    for (const { sessionId } of [gone, working])
      await t.db.sql.query(
        sql`UPDATE runplane.submission_heads SET attempts = ${SUBMISSION_ATTEMPTS_MAX}::int WHERE session_id = ${sessionId}::text`,
      );
    await passSubmissionTime(t.db, gone);
    expect(await claim({ kind: gone.kind })).toEqual([]);
    await failExhaustedSubmissionsOnce(t.db);
    expect(await getSubmission(t.db, { ...gone })).toMatchObject({
      state: 'failed',
      lastError: expect.stringMatching(/without a word/) as string,
    });
    expect(await complete(working)).toMatchObject({ changed: true });
    await expect(complete(gone)).rejects.toEqual(coded('submission_closed', { state: 'failed' }));
  });
});

test('what cannot be failed does not keep those behind it from their end', async () => {
  const [broken, fine] = [await aClaimedSubmission(t.db), await aClaimedSubmission(t.db)];
  for (const own of [broken, fine]) {
    await t.db.sql.query(
      sql`UPDATE runplane.submission_heads SET attempts = ${SUBMISSION_ATTEMPTS_MAX}::int WHERE session_id = ${own.sessionId}::text`,
    );
    await passSubmissionTime(t.db, own);
  }
  // First in line, by more than the clock's grain.
  await t.db.sql.query(
    sql`UPDATE runplane.submission_heads SET ready_at = ready_at - interval '1 minute' WHERE session_id = ${broken.sessionId}::text`,
  );
  const header = (text: string) =>
    t.db.sql.query(sql`UPDATE runplane.session_heads SET header = ${text}::json WHERE session_id = ${broken.sessionId}::text`);
  await header('[]');
  const errors: unknown[] = [];
  const sweep = () => failExhaustedSubmissionsOnce(t.db, { limit: 1, onError: (error) => errors.push(error) });
  expect([await sweep(), await sweep(), await sweep()]).toEqual([
    { changed: 0, failed: 1 },
    { changed: 1, failed: 0 },
    { changed: 0, failed: 0 },
  ]);
  expect(errors).toHaveLength(1);
  await header(`{"id":"${broken.sessionId}"}`);
  await passSubmissionTime(t.db, broken);
  expect(await sweep()).toEqual({ changed: 1, failed: 0 });
});

describe('a re-queue', () => {
  test('puts a failed submission behind all others, with claims counted anew under greater epochs', async () => {
    const first = await aClaimedSubmission(t.db, { kind });
    const { sessionId } = first;
    await aSubmission(t.db, { sessionId, operationId: 'b', kind });
    await endSubmission(t.db, { ...first, end: { state: 'failed', error: 'no', claimEpoch: first.epoch } });
    const again = await createQueue(t.db).requeueSubmission({ ...first });
    expect(again).toMatchObject({ changed: true, submission: { state: 'pending', place: 3, attempts: 1, lastError: 'no', endedAt: null } });
    expect(await createQueue(t.db).requeueSubmission({ ...first })).toEqual({ ...again, changed: false });
    const [b] = await claim();
    expect(b).toMatchObject({ operationId: 'b' });
    expect(await claim()).toEqual([]);
    await complete(b!);
    const [a] = await claim();
    expect(a).toMatchObject({ operationId: first.operationId, attempts: 2, attemptsLeft: 9, lastError: 'no' });
    expect(a!.epoch).toBeGreaterThan(first.epoch);
    await expect(complete(first)).rejects.toEqual(coded('claim_lost'));
    await complete(a!);
    await expect(createQueue(t.db).requeueSubmission({ ...first })).rejects.toEqual(coded('submission_closed', { state: 'completed' }));
    await expect(createQueue(t.db).requeueSubmission({ ...first, operationId: 'none' })).rejects.toEqual(coded('submission_not_found'));
    await expect(createQueue(t.db).requeueSubmission({ ...first, tenantId: 'other' })).rejects.toEqual(coded('session_not_found'));
    expect(await eventsOf(sessionId)).toEqual(['accepted', 'accepted', 'failed', 'requeued', 'completed', 'completed']);
  });

  test('of one that an older store brought works as well', async () => {
    const { sessionId } = await aSubmission(t.db, { operationId: 'new', kind: 'else' });
    await endSubmission(t.db, { tenantId, sessionId, operationId: 'new', end: { state: 'completed' } });
    await createSessions(t.db).importSubmissions({
      tenantId,
      sessionId,
      submissions: [{ operationId: 'old', submissionId: 'o', kind, attempts: 3 }],
    });
    const [claimed] = await claim();
    expect(claimed).toMatchObject({ operationId: 'old', attempts: 4, acceptedSequence: -1 });
    await endSubmission(t.db, { ...claimed!, end: { state: 'failed', claimEpoch: claimed!.epoch } });
    await inTransaction(t.db, (tx) => requeueSubmission(tx, { tenantId, sessionId, operationId: 'old' }));
    expect(await claim()).toMatchObject([{ operationId: 'old', attempts: 5 }]);
  });
});

describe('claims', () => {
  test('outlive a rebuild of their session’s views', async () => {
    const claimed = await aClaimedSubmission(t.db, { kind });
    await aSubmission(t.db, { sessionId: claimed.sessionId, operationId: 'next', kind });
    await rebuildSession(t.db, { tenantId, sessionId: claimed.sessionId }, { owner: 'r' });
    expect(await claim()).toEqual([]);
    expect(await renewSubmission(t.db, { ...claimed, leaseMs: 30_000 })).toMatchObject({ claimRemainingMs: 30_000 });
    expect(await complete(claimed)).toMatchObject({ changed: true, submission: { attempts: 1 } });
    expect(names(await claim())).toEqual(['next']);
  });

  test('end with their session, are in no copy of it, and in the next life of its id have greater epochs', async () => {
    const claimed = await aClaimedSubmission(t.db, { kind });
    const { sessionId, operationId } = claimed;
    await forkSession(t.db, { tenantId, sessionId, newSessionId: `${sessionId}-fork` });
    expect([await headOf(`${sessionId}-fork`), await claim()]).toEqual([undefined, []]);
    await createRuns(t.db).deleteSession({ tenantId, sessionId });
    expect(await headOf(sessionId)).toBeUndefined();
    await expect(complete(claimed)).rejects.toEqual(coded('session_deleted'));
    expect(
      await settleSubmissions(t.db, { tenantId, settlements: [{ sessionId, operationId, epoch: claimed.epoch, outcome: 'completed' }] }),
    ).toMatchObject([{ verdict: 'not_found' }]);

    await t.db.sql.query(
      sql`UPDATE runplane.session_heads SET deleted_at = deleted_at - interval '400 days' WHERE session_id = ${sessionId}::text`,
    );
    await t.db.sql.query(
      sql`UPDATE runplane.sessions SET deleted_at = deleted_at - interval '400 days' WHERE session_id = ${sessionId}::text`,
    );
    expect(await eraseDeletedOnce(t.db)).toMatchObject({ changed: 1 });
    await createSessions(t.db).createSession({ tenantId, header: { id: sessionId } });
    await aSubmission(t.db, { sessionId, operationId, kind });
    const [anew] = await claim();
    expect(anew!.epoch).toBeGreaterThan(claimed.epoch);
    await expect(complete(claimed)).rejects.toEqual(coded('claim_lost', { currentEpoch: anew!.epoch }));
    expect(await complete(anew!)).toMatchObject({ changed: true });
  });
});

describe('a waiting claimer', () => {
  test('is woken by an acceptance, by an end, and by what is given back; and gives up in time', async () => {
    const wait = (waitMs = 20_000) => waitForSubmissions(t.db, { tenantId, kind, owner: aWorker(), waitMs });
    const accepted = wait();
    const { sessionId } = await aSubmission(t.db, { operationId: 'a', kind });
    const [a] = await accepted;
    await aSubmission(t.db, { sessionId, operationId: 'b', kind });
    const given = wait();
    await releaseSubmission(t.db, { ...a! });
    expect(names(await given)).toEqual(['a']);
    const behind = wait();
    await endSubmission(t.db, { tenantId, sessionId, operationId: 'a', end: { state: 'completed' } });
    expect(names(await behind)).toEqual(['b']);
    expect(await waitForSubmissions(t.db, { tenantId, kind, owner: 'w', waitMs: 1 })).toEqual([]);
  });

  test('that has gone leaves nothing claimed', async () => {
    const gone = new AbortController();
    await aSubmission(t.db, { kind });
    gone.abort();
    expect(await waitForSubmissions(t.db, { kind, owner: 'w', waitMs: 1_000, signal: gone.signal })).toEqual([]);
    expect(await claim()).toMatchObject([{ attempts: 1 }]);
  });

  test('that has gone gives back what it has of each tenant, also where it cannot of another', async () => {
    const back: string[] = [];
    const claimed = [{ tenantId: 'a' }, { tenantId: 'b' }];
    const giveBack = (of: string) => (back.push(of) === 1 ? Promise.reject(new Error('not now')) : Promise.resolve());
    const waiting = {
      stream: 'queues:x',
      waitMs: 0,
      signal: AbortSignal.abort(),
      claim: () => Promise.resolve(claimed),
      giveBack,
    } as const;
    await expect(waitForClaims(t.db, waiting)).rejects.toThrow('not now');
    expect(back).toEqual(['a', 'b']);
  });
});
