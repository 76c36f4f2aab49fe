import {
  BacklogFull,
  CapacityReached,
  ClaimLost,
  DatabaseUnavailable,
  LockTimeout,
  OutcomeUnknown,
  PoolTimeout,
  SessionBoundary,
  SessionLeased,
  SessionNotFound,
  ShuttingDown,
  TransactionConflict,
} from '@runplane/contracts';
import { inTransaction, sql, type Db } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { claimRun, createRuns, getCommand, listRuns } from '@runplane/runs';
import { aClaimedTurn, aRunner, aTurn, endLease, makeTenants, newRun, newTurn, TENANT } from '@runplane/runs/testing';
import { acceptSubmission, createSessions, getSession, getSubmission, readSessionEvents } from '@runplane/sessions';
import { claimSubmissions, releaseSubmission, settleSubmissions, startQueuedTurnsOnce } from './index';
import { decideStartFailure, type StartFailure } from './start-decisions';

// Turns that wait in the queue of their session, and what starts them.

const t = useDatabase();
const tenantId = TENANT;
const runs = () => createRuns(t.db);
const start = (owner = 'starter') => startQueuedTurnsOnce(t.db, { owner });
const nothing = { started: 0, heldBack: 0, refused: 0, failed: 0, putOff: 0 };
let names = 0;
const newSession = () => `s${(names += 1)}`;
async function aFreeSession(): Promise<string> {
  const sessionId = newSession();
  await createSessions(t.db).createSession({ tenantId, header: { id: sessionId } });
  return sessionId;
}
const submission = (sessionId: string, operationId: string) => getSubmission(t.db, { tenantId, sessionId, operationId });
const enqueue = (sessionId: string, idempotencyKey: string) =>
  runs().admitTurn({ tenantId, sessionId, idempotencyKey, turn: { ...newTurn(idempotencyKey), busyPolicy: 'enqueue' } });
/** As a front end does that asks nobody about the session. */
const accept = (sessionId: string, operationId: string, payload: object = { run: newRun(), payload: { text: operationId } }) =>
  acceptSubmission(t.db, { tenantId, sessionId, operationId, submission: { kind: 'turn', payload: payload as never } });
const completed = { terminalStatus: 'completed' } as const;

/** Ends the open turn of a session as its runner would; says which it was. */
async function finishOpen(sessionId: string): Promise<string> {
  const { activeRunId: runId, activeCommandId } = await getSession(t.db, { tenantId, sessionId });
  if (runId === null || activeCommandId === null) throw new Error(`session ${sessionId} has no open turn`);
  const { payload } = await getCommand(t.db, { tenantId, commandId: activeCommandId });
  const { epoch } = await claimRun(t.db, { tenantId, runId, runnerId: aRunner() });
  await runs().finishRun({ tenantId, runId, epoch, outcome: completed });
  return payload['text'] as string;
}

/** What time does to a hold back. */
const passRecheck = () => t.db.sql.query(sql`UPDATE runplane.submission_heads SET ready_at = runplane.app_now() WHERE state = 'waiting'`);
const attemptsOf = async (sessionId: string) =>
  (await t.db.pool.query('SELECT attempts FROM runplane.submission_heads WHERE session_id = $1', [sessionId])).rows[0]?.attempts as number;

const millisecondsOf = async (what: string, sessionId: string | null = null): Promise<number> => {
  const from = sessionId === null ? '' : 'FROM runplane.submission_heads WHERE session_id = $1';
  const { rows } = await t.db.pool.query(
    `SELECT (extract(epoch FROM ${what}) * 1000)::float8 AS ms ${from}`,
    sessionId === null ? [] : [sessionId],
  );
  return (rows[0] as { ms: number }).ms;
};
const now = () => millisecondsOf('runplane.app_now()');
/** Between what earliest and latest moments it is looked at again, from before and behind what has said so. */
const readyAt = (sessionId: string) => millisecondsOf('ready_at', sessionId);
/** A back-off that no slow machine lets pass. */
const backOffLonger = () =>
  t.db.sql.query(sql`UPDATE runplane.submission_heads SET ready_at = ready_at + interval '1 hour' WHERE ready_at > runplane.app_now()`);

beforeAll(() => makeTenants(t.db));

describe('a queued turn', () => {
  test('starts when the open one has ended, in the order of the calls, once each; its key then finds its run', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    for (const key of ['one', 'two', 'three']) await enqueue(sessionId, key);
    expect(await start()).toEqual(nothing); // held back without a claim

    await runs().finishRun({ tenantId, runId: open.run.id, epoch: open.epoch, outcome: completed });
    const order: string[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      expect(await start()).toEqual({ ...nothing, started: 1 });
      expect(await start()).toEqual(nothing);
      order.push(await finishOpen(sessionId));
    }

    expect(order).toEqual(['one', 'two', 'three']);
    const again = await enqueue(sessionId, 'two');
    expect(again).toMatchObject({ disposition: 'replayed', run: { status: 'completed' } });
    const { run } = again as { run: { id: string } };
    expect(await submission(sessionId, 'two')).toMatchObject({ state: 'completed', attempts: 1, runId: run.id });
    const { events } = await readSessionEvents(t.db, { tenantId, sessionId });
    expect(events.map(({ type, data }) => [type, data['operation_id'], data['run_id']])).toContainEqual([
      'submission/completed',
      'two',
      run.id,
    ]);
    expect((await listRuns(t.db, { tenantId, sessionId })).runs).toHaveLength(4);
  });

  test('of a session that is busy waits without its tries being used up, and is called by the end of the open turn', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    await accept(sessionId, 'direct'); // by a front end that knows nothing of the open turn
    for (let pass = 0; pass < 12; pass += 1) {
      expect(await start()).toEqual({ ...nothing, heldBack: 1 });
      expect(await start()).toEqual(nothing);
      await passRecheck();
    }
    await start();
    expect(await attemptsOf(sessionId)).toBe(0);

    await runs().finishRun({ tenantId, runId: open.run.id, epoch: open.epoch, outcome: completed });
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('takes over a session whose open turn nobody works on', async () => {
    const sessionId = newSession();
    const lost = await aClaimedTurn(t.db, sessionId);
    await enqueue(sessionId, 'next');
    await endLease(t.db, lost.run.id);
    await passRecheck();
    expect(await start()).toEqual({ ...nothing, started: 1 });
    expect(await submission(sessionId, 'next')).toMatchObject({ state: 'completed' });
  });

  test('that can never be admitted fails with the reason, and the next one goes on', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    await accept(sessionId, 'no turn', { text: 'hello' });
    await accept(sessionId, 'other profile', { run: { ...newRun(), backendProfile: 'other' }, payload: {} });
    await enqueue(sessionId, 'good');
    await runs().finishRun({ tenantId, runId: open.run.id, epoch: open.epoch, outcome: completed });

    expect([await start(), await start(), await start()]).toEqual([
      { ...nothing, refused: 1 },
      { ...nothing, refused: 1 },
      { ...nothing, started: 1 },
    ]);
    expect(await submission(sessionId, 'no turn')).toMatchObject({
      state: 'failed',
      lastError: expect.stringMatching(/^invalid_request: /),
    });
    expect(await submission(sessionId, 'other profile')).toMatchObject({
      state: 'failed',
      lastError: expect.stringMatching(/^session_boundary: /),
    });
    expect(await enqueue(sessionId, 'good')).toMatchObject({ disposition: 'replayed' });
  });

  test('that something goes wrong with comes again after a back-off; the try counts', async () => {
    const sessionId = await aFreeSession();
    await accept(sessionId, 'unlucky');
    await t.db.pool.query('ALTER TABLE runplane.runs ADD CONSTRAINT broken CHECK (false) NOT VALID');
    const errors: unknown[] = [];
    const broken = await startQueuedTurnsOnce(t.db, { owner: 'starter', onError: (error) => errors.push(error) });
    await t.db.pool.query('ALTER TABLE runplane.runs DROP CONSTRAINT broken');

    expect(broken).toEqual({ ...nothing, failed: 1 });
    await backOffLonger();
    expect(errors).toHaveLength(1);
    expect(await submission(sessionId, 'unlucky')).toMatchObject({
      state: 'pending',
      attempts: 1,
      lastError: expect.stringContaining('broken'),
    });
    expect(await start()).toEqual(nothing);
    await passRecheck();
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('whose start the database cuts off comes again without the try: it was not looked at', async () => {
    const sessionId = await aFreeSession();
    await accept(sessionId, 'cut off');
    const holder = await openClient(t.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.sessions WHERE session_id = $1 FOR UPDATE', [sessionId]);
    const errors: unknown[] = [];
    const starting = startQueuedTurnsOnce(t.db, { owner: 'starter', onError: (error) => errors.push(error) });
    await waitUntilBlocked(t.db, 1);
    await holder.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`,
    );
    expect(await starting).toEqual({ ...nothing, putOff: 1 });
    await holder.query('ROLLBACK');
    await holder.end();

    expect(errors).toEqual([expect.objectContaining({ retryable: true })]);
    expect(await submission(sessionId, 'cut off')).toMatchObject({ state: 'pending', attempts: 0, claim: null, lastError: null });
    expect(await start()).toEqual(nothing); // for a while
    await passRecheck();
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('that a process which stops has claimed while the database is away does not keep it from stopping', async () => {
    const sessionId = await aFreeSession();
    await accept(sessionId, 'left');
    const stopping = new AbortController();
    let looks = 0;
    const query = () => {
      looks += 1;
      if (looks === 2) stopping.abort();
      return Promise.reject(new DatabaseUnavailable());
    };
    const away = { value: { query, $transaction: query } };
    const db = Object.create(t.db, { lane: away, prisma: away }) as Db;
    expect(await startQueuedTurnsOnce(db, { owner: 'stopping', signal: stopping.signal })).toEqual({ ...nothing, putOff: 1 });
    expect(looks).toBe(2);

    await t.db.sql.query(
      sql`UPDATE runplane.submission_heads SET expires_at = runplane.app_now(), ready_at = runplane.app_now() WHERE session_id = ${sessionId}::text`,
    );
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test.each<[what: string, error: Error, StartFailure]>([
    ['a defect', new TypeError('of undefined'), 'failed'],
    ['a refusal that may pass', new SessionLeased('', { sessionId: 's', owner: 'o', leaseRemainingMs: 1 }), 'failed'],
    ['a full place', new CapacityReached('', { key: 'k' } as never), 'failed'],
    ['a refusal for good', new SessionBoundary('', { sessionId: 's' } as never), 'refused'],
    ['a claim that is over', new ClaimLost('', { operationId: 'o' } as never), 'gone'],
    ['a session that is gone', new SessionNotFound('', { sessionId: 's' }), 'gone'],
    ['a pool without room', new PoolTimeout(), 'put-off'],
    ['a database that is away', new DatabaseUnavailable(), 'put-off'],
    ['a commit without an answer', new OutcomeUnknown(), 'put-off'],
    ['a lock that somebody holds for long', new LockTimeout(), 'put-off'],
    ['a conflict of transactions', new TransactionConflict('', { attempts: 3 }), 'put-off'],
    ['a backlog of this process', new BacklogFull('', { callsMax: 1, bytesMax: 1 }), 'put-off'],
    ['a process that stops', new ShuttingDown(), 'put-off'],
  ])('that fails by %s: a try counts only where somebody has looked at the turn', (_, error, end) => {
    expect(decideStartFailure(error)).toBe(end);
  });

  test('that goes wrong is called by ends of other turns no sooner than its tries allow', async () => {
    const sessionId = newSession();
    await aTurn(t.db, sessionId);
    await enqueue(sessionId, 'unlucky');
    const fail = (tries: number) =>
      t.db.sql.query(sql`UPDATE runplane.submission_heads SET attempts = ${tries}::int WHERE session_id = ${sessionId}::text`);
    await fail(4);
    const before = await now();
    await finishOpen(sessionId);
    expect(await readyAt(sessionId)).toBeGreaterThanOrEqual(before + 8_000);
    expect(await readyAt(sessionId)).toBeLessThanOrEqual((await now()) + 8_000);
    await fail(0);
    await aTurn(t.db, sessionId);
    await finishOpen(sessionId);
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('is looked at when it was to be, whoever comes to wait behind it', async () => {
    const sessionId = newSession();
    await aClaimedTurn(t.db, sessionId);
    await enqueue(sessionId, 'first');
    await t.db.sql.query(
      sql`UPDATE runplane.submission_heads SET ready_at = runplane.app_now() + interval '5 seconds' WHERE session_id = ${sessionId}::text`,
    );
    await enqueue(sessionId, 'second');
    expect(await readyAt(sessionId)).toBeLessThanOrEqual((await now()) + 5_000);
    for (const operationId of ['first', 'second'])
      // neither is to start in a later test
      await createSessions(t.db).endSubmission({ tenantId, sessionId, operationId, end: { state: 'completed' } });
  });

  test('whose starter has died is started by the next one when the claim is over; the dead one’s word counts no more', async () => {
    const sessionId = await aFreeSession();
    await accept(sessionId, 'orphan');
    const [dead] = await claimSubmissions(t.db, { tenantId, kind: 'turn', owner: 'dead' });
    if (dead === undefined) throw new Error('nothing to claim');
    expect(await start()).toEqual(nothing);
    await t.db.sql.query(
      sql`UPDATE runplane.submission_heads SET expires_at = runplane.app_now(), ready_at = runplane.app_now() WHERE state = 'claimed'`,
    );

    expect(await start()).toEqual({ ...nothing, started: 1 });
    const late = { sessionId, operationId: 'orphan', epoch: dead.epoch, outcome: 'failed' as const, error: 'late' };
    expect(await settleSubmissions(t.db, { tenantId, settlements: [late] })).toMatchObject([{ verdict: 'closed' }]);
    expect(await submission(sessionId, 'orphan')).toMatchObject({ state: 'completed', attempts: 2 });
  });

  test('admitted under its key by somebody else is completed with that run', async () => {
    const sessionId = newSession();
    await aTurn(t.db, sessionId);
    await enqueue(sessionId, 'both');
    await finishOpen(sessionId);
    const { run } = await runs().admitTurn({ tenantId, sessionId, idempotencyKey: 'both', turn: newTurn('both') });
    expect(await start()).toEqual({ ...nothing, started: 1 });
    expect(await submission(sessionId, 'both')).toMatchObject({ state: 'completed', runId: run.id });
  });

  test('goes to a claimer of all kinds like anything else, unless it is held back: who gets it starts it by its key, or gives it back to the loop', async () => {
    const claimAll = () => claimSubmissions(t.db, { tenantId, owner: 'of all kinds', limit: 100 });
    // What other tests have left waits longer than this one takes.
    await t.db.pool.query(`UPDATE runplane.submission_heads SET ready_at = runplane.app_now() + interval '1 hour' WHERE state = 'waiting'`);
    const busy = newSession();
    await aClaimedTurn(t.db, busy);
    await enqueue(busy, 'held back');
    const free = await aFreeSession();
    await accept(free, 'turn', newTurn('turn'));

    for (const end of ['released', 'completed'] as const) {
      const claimed = await claimAll();
      expect(claimed.map(({ kind, operationId }) => [kind, operationId])).toEqual([['turn', 'turn']]);
      expect(await start()).toEqual(nothing);
      if (end === 'completed') {
        const admitted = await runs().admitTurn({ tenantId, sessionId: free, idempotencyKey: 'turn', turn: newTurn('turn') });
        expect(admitted).toMatchObject({ disposition: 'created' });
      }
      const settlements = claimed.map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch, outcome: end }));
      expect(await settleSubmissions(t.db, { tenantId, settlements })).toMatchObject([{ verdict: 'ok' }]);
    }
    expect(await start()).toEqual(nothing);
    expect(await finishOpen(free)).toBe('turn');
    await accept(free, 'next');
    const [claimed] = await claimAll();
    await releaseSubmission(t.db, { tenantId, sessionId: free, operationId: 'next', epoch: claimed?.epoch ?? 0 });
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('that is held back while the open turn ends is called behind it', async () => {
    const sessionId = newSession();
    const open = await aClaimedTurn(t.db, sessionId);
    await accept(sessionId, 'direct');
    const holder = await openClient(t.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.run_leases WHERE run_id = $1 FOR UPDATE', [open.run.id]);
    const starting = start(); // has claimed the turn, holds the run, and is about to see that the session is busy
    await waitUntilBlocked(t.db, 1);
    const finishing = runs().finishRun({ tenantId, runId: open.run.id, epoch: open.epoch, outcome: completed });
    await waitUntilBlocked(t.db, 2);
    await holder.query('COMMIT');
    await holder.end();

    expect(await starting).toEqual({ ...nothing, heldBack: 1 });
    await finishing;
    expect(await start()).toEqual({ ...nothing, started: 1 });
  });

  test('is not started twice by starters at once', async () => {
    const sessions = await Promise.all(Array.from({ length: 12 }, aFreeSession));
    for (const sessionId of sessions) {
      await accept(sessionId, 'a');
      await accept(sessionId, 'b');
    }
    const ends = await Promise.all(Array.from({ length: 6 }, (_, n) => start(`starter-${n}`)));
    expect(ends.reduce((sum, { started }) => sum + started, 0)).toBe(12);
    for (const sessionId of sessions) expect(await finishOpen(sessionId)).toBe('a');
    await inTransaction(t.db, (tx) =>
      tx.query(sql`UPDATE runplane.submission_heads SET ready_at = runplane.app_now() WHERE state = 'waiting'`),
    );
    while ((await start()).started > 0);
    for (const sessionId of sessions) expect(await finishOpen(sessionId)).toBe('b');
  });
});
