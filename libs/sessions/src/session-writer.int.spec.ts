import { OutcomeUnknown } from '@runplane/contracts';
import { ensureTenant, inTransaction, sql, type At } from '@runplane/database';
import { eventually, openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { appendSessionEvents } from './append-session-events';
import { acquireSessionLease, revokeSessionLease } from './session-lease';
import { rebuildSession } from './rebuild/rebuild-session';
import { readSessionEvents } from './read-session-events';
import { openSessionWriter } from './session-writer';
import { createSessions } from './sessions';

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => ensureTenant(t.db.sql, tenantId, { leaselessEventTypes: ['metrics/*'] }));

const key = (sessionId: string) => ({ tenantId, sessionId });
const aWriter = async (id: string, options = {}) => {
  await createSessions(t.db).createSession({ tenantId, header: { id } });
  return openSessionWriter(t.db, { ...key(id), ...options });
};
const said = (text: string) => ({ type: 'custom/said', data: { content: text } });
const noise = (id: string, at: At = t.db) => appendSessionEvents(at, { ...key(id), events: [{ type: 'metrics/n', data: {} }] });

/** The writer's clock and timers in the test's hand: no stall of the machine ends a lease. PostgreSQL has its own clock. */
const takeTheClock = () =>
  jest.useFakeTimers({
    doNotFake: ['Date', 'hrtime', 'nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate', 'setInterval', 'clearInterval'],
  });
afterEach(() => void jest.useRealTimers());

/** Counts the statements of some work on the store's pool. */
async function statementsOf(work: () => Promise<unknown>): Promise<number> {
  const query = jest.spyOn(t.db.sql, 'query');
  try {
    await work();
    return query.mock.calls.filter(([statement]) => !statement.text.includes('pg_notify')).length;
  } finally {
    query.mockRestore();
  }
}

test('a writer appends with one statement each, in the order of the calls', async () => {
  const writer = await aWriter('w1');
  expect(await statementsOf(() => writer.append([said('a')]))).toBe(1);
  const answers = await Promise.all([writer.append([said('b'), said('c')]), writer.append([said('d')])]);
  expect(answers.map(({ lastSequence }) => lastSequence)).toEqual([2, 3]);
  expect(writer.lastSequence).toBe(3);
  await writer.close();
  expect((await acquireSessionLease(t.db, { ...key('w1'), owner: 'next' })).epoch).toBe(writer.epoch + 1);
});

test('a writer goes on behind what others have appended', async () => {
  const writer = await aWriter('w2');
  await writer.append([said('a')]);
  await noise('w2');
  const after = await writer.append([said('b')]);
  expect(after.events.map(({ sequence }) => sequence)).toEqual([2]);
  await noise('w2');
  await expect(writer.append([said('c')], { expectedSequence: 3 })).rejects.toMatchObject({ code: 'sequence_conflict' });
  expect((await writer.append([said('c')], { expectedSequence: 4 })).lastSequence).toBe(4);
  await writer.close();
});

test('a writer says where the log stands, not where it stood', async () => {
  const writer = await aWriter('w8');
  await writer.append([said('a')]);
  await noise('w8');
  expect(await writer.append([said('b')], { expectedSequence: 2 })).toMatchObject({ lastSequence: 2 });
  await noise('w8');
  expect(await writer.append([], { expectedSequence: 4 })).toMatchObject({ lastSequence: 3 });
  await revokeSessionLease(t.db, key('w8'));
  await expect(writer.append([])).rejects.toMatchObject({ code: 'session_lease_lost', data: { reason: 'other' } });
});

test('a writer that is closed behind an append gives the lease back when the append is in, and loses nothing any more', async () => {
  const lost = jest.fn();
  takeTheClock();
  const writer = await aWriter('w9', { leaseMs: 30_000, onLost: lost });
  const client = await openClient(t.url);
  await client.query('BEGIN');
  await client.query(`SELECT FROM runplane.session_heads WHERE session_id = 'w9' FOR UPDATE`);
  const renewal = jest.spyOn(t.db.lane, 'query');
  jest.advanceTimersByTime(10_001);
  expect(renewal).toHaveBeenCalled(); // and it looks again while somebody holds the head
  const appended = writer.append([said('a')]);
  const closed = writer.close();
  await waitUntilBlocked(t.db, 1);
  await client.query('COMMIT');
  await client.end();
  expect(await appended).toMatchObject({ lastSequence: 0 });
  await closed;
  const { rows } = await t.db.pool.query(`SELECT lease_owner FROM runplane.session_heads WHERE session_id = 'w9'`);
  expect(rows).toEqual([{ lease_owner: null }]);
  await eventually(() => t.db.pool.idleCount === t.db.pool.totalCount); // hints
  jest.advanceTimersByTime(60_000);
  renewal.mockRestore();
  expect(lost).not.toHaveBeenCalled();
  expect(writer.signal.aborted).toBe(false);
});

test('a writer goes on with what a rebuild has made of the views', async () => {
  const writer = await aWriter('w10');
  await writer.append([{ type: 'turn/start', turnId: 't1', data: {} }]);
  const stored = async () => (await t.db.pool.query<{ snapshot: object }>(`SELECT snapshot FROM runplane.session_heads WHERE session_id = 'w10'`)).rows[0]?.snapshot; // prettier-ignore
  await t.db.pool.query(
    `UPDATE runplane.session_heads SET snapshot = json_build_object('activeTurnId', 'by older rules'), views_version = 0 WHERE session_id = 'w10'`,
  );
  await writer.append([{ type: 'custom/said', data: {} }], { appendId: 'looked for' }); // reads the head as older rules have left it
  await rebuildSession(t.db, key('w10'), { owner: 'r' });
  await writer.append([{ type: 'step/start', turnId: 't1', stepId: 's1', data: {} }]);
  expect(await stored()).toMatchObject({ activeTurnId: 't1', activeStepId: 's1' });
  await writer.close();
});

test('a writer that loses every race takes the head first', async () => {
  const writer = await aWriter('w11');
  const on = t.db.sql;
  const real = on.query.bind(on);
  let isNoisy = false;
  const query = jest.spyOn(on, 'query').mockImplementation(async (statement) => {
    if (!isNoisy && statement.text.includes('INSERT INTO runplane.session_events')) {
      isNoisy = true;
      await inTransaction(t.db, (tx) => noise('w11', tx)); // not behind the statement that it disturbs
      isNoisy = false;
    }
    return real(statement);
  });
  const answer = await writer.append([said('a')]);
  query.mockRestore();
  expect(answer).toMatchObject({ lastSequence: 3, replayed: false });
  expect(writer.lastSequence).toBe(3);
  expect(await writer.append([said('b')])).toMatchObject({ lastSequence: 4 });
  await writer.close();
});

test('a writer that decides is judged when it has the head', async () => {
  const writer = await aWriter('w12');
  const client = await openClient(t.url);
  /** False: the machine was so slow that the approval had expired before the writer came to the head. */
  const isJudgedBehindTheLock = async (timeoutSeconds: number) => {
    const approvalId = `a-${timeoutSeconds}`;
    await writer.append([{ type: 'approval/requested', data: { approval_id: approvalId, timeout_seconds: timeoutSeconds } }]);
    await client.query('BEGIN');
    await client.query(`SELECT FROM runplane.session_heads WHERE session_id = 'w12' FOR UPDATE`);
    const decided = writer.append([{ type: 'approval/resolved', data: { approval_id: approvalId, resolution: 'approved' } }]);
    const refused = expect(decided).rejects.toMatchObject({ code: 'approval_expired' });
    const isBlocked = await Promise.race([waitUntilBlocked(t.db, 1).then(() => true), refused.then(() => false)]);
    await client.query(
      `SELECT pg_sleep(greatest(0, extract(epoch FROM expires_at - clock_timestamp()) + 0.01)) FROM runplane.approvals WHERE session_id = 'w12' AND approval_id = $1`,
      [approvalId],
    );
    await client.query('COMMIT');
    await refused;
    return isBlocked;
  };
  expect((await isJudgedBehindTheLock(0.3)) || (await isJudgedBehindTheLock(2)) || (await isJudgedBehindTheLock(8))).toBe(true);
  await client.end();
  await writer.close();
});

test('a writer whose lease is taken stops, and says so', async () => {
  const lost: string[] = [];
  const writer = await aWriter('w3', { onLost: ({ data }: { data: { reason: string } }) => lost.push(data.reason) });
  await revokeSessionLease(t.db, key('w3'));
  await expect(writer.append([said('a')])).rejects.toMatchObject({ code: 'session_lease_lost', data: { reason: 'other' } });
  expect(writer.signal.aborted).toBe(true);
  await expect(writer.append([said('a')])).rejects.toMatchObject({ code: 'session_lease_lost' });
  expect(lost).toEqual(['other']);
  await writer.close();
});

test('a writer that is told of its loss by code that throws is lost all the same, and the error goes where errors go', async () => {
  const errors = jest.spyOn(t.db.options, 'onError').mockImplementation(() => undefined);
  const onLost = () => {
    throw new Error('oops');
  };
  const writer = await aWriter('w3e', { onLost });
  await revokeSessionLease(t.db, key('w3e'));
  await expect(writer.append([said('a')])).rejects.toMatchObject({ code: 'session_lease_lost' });
  expect(errors.mock.calls.map(([{ message }]) => message)).toEqual(['oops']);
  errors.mockRestore();
  await writer.close();
});

test('a writer whose lease is taken by another stops, also where nothing was appended since', async () => {
  const writer = await aWriter('w7');
  await writer.append([said('a')]);
  await revokeSessionLease(t.db, key('w7'));
  await acquireSessionLease(t.db, { ...key('w7'), owner: 'next' });
  await expect(writer.append([said('b')])).rejects.toMatchObject({ code: 'session_lease_lost', data: { reason: 'other' } });
  expect((await readSessionEvents(t.db, key('w7'))).lastSequence).toBe(0);
  await writer.close();
});

test('a writer that cannot renew stops at its own deadline', async () => {
  const renewal = jest.spyOn(t.db.lane, 'query').mockRejectedValue(new Error('no answer'));
  const errors = jest.spyOn(t.db.options, 'onError').mockImplementation(() => undefined);
  takeTheClock();
  const writer = await aWriter('w4', { leaseMs: 30_000 });
  await jest.advanceTimersByTimeAsync(29_000);
  expect(writer.signal.aborted).toBe(false);
  await jest.advanceTimersByTimeAsync(1_002);
  expect(writer.signal.aborted).toBe(true);
  expect(writer.remainingMs).toBe(0);
  await expect(writer.append([said('a')])).rejects.toMatchObject({ code: 'session_lease_lost', data: { reason: 'expired' } });
  renewal.mockRestore();
  errors.mockRestore();
});

test('a writer whose renewals fail tries the sooner the less is left, and keeps the lease by the one that gets through', async () => {
  const renewal = jest.spyOn(t.db.lane, 'query').mockRejectedValue(new Error('no answer'));
  const errors = jest.spyOn(t.db.options, 'onError').mockImplementation(() => undefined);
  takeTheClock();
  const writer = await aWriter('w14', { leaseMs: 30_000 });
  await jest.advanceTimersByTimeAsync(25_000);
  expect(renewal.mock.calls.length).toBeGreaterThan(3);
  renewal.mockRestore();
  await jest.advanceTimersByTimeAsync(3_500);
  await eventually(() => writer.remainingMs > 20_000);
  expect(writer.signal.aborted).toBe(false);
  errors.mockRestore();
  await writer.close();
});

test('a writer renews in time', async () => {
  takeTheClock();
  const writer = await aWriter('w5', { leaseMs: 30_000 });
  const renewal = jest.spyOn(t.db.lane, 'query');
  for (let third = 1; third <= 5; third += 1) {
    jest.advanceTimersByTime(10_001);
    expect(renewal).toHaveBeenCalledTimes(third);
    await eventually(() => writer.remainingMs > 20_000); // its answer is in
  }
  renewal.mockRestore();
  expect(writer.signal.aborted).toBe(false);
  expect((await writer.append([said('a')])).lastSequence).toBe(0);
  await writer.close();
});

test('an append whose answer was lost is found again, not written twice', async () => {
  const writer = await aWriter('w6');
  const on = t.db.sql;
  const real = on.query.bind(on);
  const query = jest.spyOn(on, 'query').mockImplementationOnce(async (statement) => {
    await real(statement);
    throw new OutcomeUnknown();
  });
  const answer = await writer.append([said('a'), said('b')]);
  query.mockRestore();
  expect(answer).toMatchObject({ lastSequence: 1, replayed: true });
  const [row] = await t.db.sql.query(sql`SELECT count(*)::int AS n FROM runplane.session_events WHERE session_id = 'w6'`);
  expect(row).toEqual({ n: 2 });
  expect((await writer.append([said('c')])).lastSequence).toBe(2);
  await writer.close();
});
