import { inTransaction, sql } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { claimRun, createRuns, getCommand, listRuns } from '@runplane/runs';
import { aClaimedTurn, aRunner, aTurn, endLease, makeTenants, newRun, newTurn, TENANT } from '@runplane/runs/testing';
import { acceptSubmission, createSessions, getSession, getSubmission, readSessionEvents } from '@runplane/sessions';
import { claimSubmissions, settleSubmissions, startQueuedTurnsOnce } from './index';

// Turns that wait in the queue of their session, and what starts them.

const t = useDatabase();
const tenantId = TENANT;
const runs = () => createRuns(t.db);
const start = (owner = 'starter') => startQueuedTurnsOnce(t.db, { owner });
const nothing = { started: 0, heldBack: 0, refused: 0, failed: 0 };
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

const readyInMs = async (sessionId: string) => {
  const { rows } = await t.db.pool.query(
    'SELECT runplane.ms_until(ready_at, runplane.app_now())::int AS ms FROM runplane.submission_heads WHERE session_id = $1',
    [sessionId],
  );
  return (rows[0] as { ms: number }).ms;
};

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

  test('that goes wrong is called by ends of other turns no sooner than its tries allow', async () => {
    const sessionId = newSession();
    await aTurn(t.db, sessionId);
    await enqueue(sessionId, 'unlucky');
    const fail = (tries: number) =>
      t.db.sql.query(sql`UPDATE runplane.submission_heads SET attempts = ${tries}::int WHERE session_id = ${sessionId}::text`);
    await fail(4);
    await finishOpen(sessionId);
    expect(await readyInMs(sessionId)).toBeGreaterThan(7_000);
    expect(await readyInMs(sessionId)).toBeLessThanOrEqual(8_000);
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
    expect(await readyInMs(sessionId)).toBeLessThanOrEqual(5_000);
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
