import { newId, type AppendSessionEvents } from '@runplane/contracts';
import { inTransaction, isLive, type At } from '@runplane/database';
import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import { cancelRun, createRun, createRuns, deleteSession } from '@runplane/runs';
import { aClaimedTurn, newRun, newTurn, TENANT } from '@runplane/runs/testing';
import {
  acceptSubmission,
  acquireSessionLease,
  appendAsServer,
  appendSessionEvents,
  countUnfinishedSubmissions,
  createSession,
  createSessions,
  eraseSessionRows,
  getSession,
  getSessionLog,
  importSubmissions,
  lockHead,
  openSessionWriter,
  releaseSessionLease,
  renewSessionLease,
  revokeSessionLease,
} from '@runplane/sessions';
import { ending, hold, meet, meetAborted, useRaces } from '../support/races';

// Whoever writes a session's log, holds its lease or makes it, against the others: the head's row is where they meet.

const t = useRaces();
const said = (text: string) => ({ type: 'custom/said', data: { text } });
const enqueued = { type: 'input/enqueued', data: { input_id: 'i' } };
const append = (at: At, sessionId: string, input: AppendSessionEvents) =>
  appendSessionEvents(at, { tenantId: TENANT, sessionId, ...input });

async function aSession(): Promise<{ tenantId: string; sessionId: string }> {
  const sessionId = newId('session');
  await createSessions(t.db).createSession({ tenantId: TENANT, header: { id: sessionId } });
  return { tenantId: TENANT, sessionId };
}
async function aLeased() {
  const key = await aSession();
  return { key, ...(await acquireSessionLease(t.db, { ...key, owner: 'a' })) };
}
async function logOf(sessionId: string): Promise<unknown[]> {
  const { rows } = await t.db.pool.query<{ text: unknown }>(
    `SELECT data ->> 'text' AS text FROM runplane.session_events WHERE session_id = $1 ORDER BY sequence`,
    [sessionId],
  );
  return rows.map(({ text }) => text);
}

describe('a lease that changes hands', () => {
  test('waits for an append that has passed its check, which is then before the new holder', async () => {
    const { key, sessionId, epoch } = await aLeased();

    const [, taken] = await meet(
      t.db,
      (tx) => append(tx, sessionId, { epoch, events: [said('mine')] }),
      () => revokeSessionLease(t.db, key),
    );

    expect(taken).toEqual({ value: { revoked: true } });
    expect((await acquireSessionLease(t.db, { ...key, owner: 'b' })).epoch).toBe(epoch + 2);
    expect(await logOf(sessionId)).toEqual(['mine']);
  });

  test('refuses an append that comes while it is being taken, and one rolled back does not', async () => {
    const { key, sessionId, epoch } = await aLeased();
    const late = () => append(t.db, sessionId, { epoch, events: [said('late')] });

    expect(await meetAborted(t.db, (tx) => revokeSessionLease(tx, key), late)).toMatchObject({ value: { lastSequence: 0 } });
    const [, refused] = await meet(t.db, (tx) => revokeSessionLease(tx, key), late);

    expect(refused).toMatchObject({ code: 'session_lease_lost', data: { reason: 'other' } });
    expect(await logOf(sessionId)).toEqual(['late']);
  });

  test('that is given back while an append of it waits is over for it, and for a renewal', async () => {
    const { key, sessionId, epoch } = await aLeased();

    const held = await hold(t.db, (tx) => releaseSessionLease(tx, { ...key, owner: 'a', epoch }));
    const calls = [
      ending(append(t.db, sessionId, { epoch, events: [said('late')] })),
      ending(inTransaction(t.db, (tx) => append(tx, sessionId, { epoch, events: [said('late')] }))),
      ending(inTransaction(t.db, (tx) => renewSessionLease(tx, { ...key, owner: 'a', epoch }))),
    ];
    await waitUntilBlocked(t.db, 3);
    await held.commit();

    for (const refused of await Promise.all(calls))
      expect(refused).toMatchObject({ code: 'session_lease_lost', data: { currentEpoch: epoch } });
    expect(await logOf(sessionId)).toEqual([]);
  });

  test('goes to one of two who ask for it at once', async () => {
    const key = await aSession();

    const [first, second] = await meet(
      t.db,
      (tx) => acquireSessionLease(tx, { ...key, owner: 'a' }),
      () => acquireSessionLease(t.db, { ...key, owner: 'b' }),
    );

    expect(first).toMatchObject({ owner: 'a', epoch: 1 });
    expect(second).toMatchObject({ code: 'session_leased', data: { owner: 'a' } });
  });
});

test('a lease that ends while an append waits for the head is over for it, and for a renewal', async () => {
  const { key, sessionId, epoch } = await aLeased();
  await t.db.pool.query(
    `UPDATE runplane.session_heads SET lease_expires_at = clock_timestamp() + interval '300 ms' WHERE session_id = $1`,
    [sessionId],
  );
  const held = await hold(t.db, (tx) => lockHead(tx, key)); // the row stays as it is: PostgreSQL looks at no condition again
  const calls = [
    ending(append(t.db, sessionId, { epoch, events: [said('late')] })),
    ending(renewSessionLease(t.db, { ...key, owner: 'a', epoch })),
  ];
  await waitUntilBlocked(t.db, 1); // a renewal holds up no other: it looks again and again
  const isOver = async () => !isLive((await t.db.pool.query<{ ms: number }>(
    `SELECT runplane.ms_until(lease_expires_at, runplane.app_now()) AS ms FROM runplane.session_heads WHERE session_id = $1`, [sessionId])).rows[0]?.ms ?? 0); // prettier-ignore
  while (!(await isOver()));
  await held.commit();

  for (const ended of await Promise.all(calls)) expect(ended).toMatchObject({ code: 'session_lease_lost', data: { reason: 'expired' } });
  expect(await logOf(sessionId)).toEqual([]);
});

describe('a writer that was replaced', () => {
  test('is refused by everything that names its epoch, and nothing moves', async () => {
    const { key, sessionId, epoch } = await aLeased();
    const writer = await openSessionWriter(t.db, { ...key, owner: 'a' }); // the same lease, held by a process that stands still
    await writer.append([said('before')]);
    await revokeSessionLease(t.db, key);
    const next = await acquireSessionLease(t.db, { ...key, owner: 'b' });
    await append(t.db, sessionId, { epoch: next.epoch, events: [said('after')] });
    const state = () => t.db.pool.query(`SELECT xmin::text, * FROM runplane.session_heads WHERE session_id = $1`, [sessionId]);
    const { rows: before } = await state();

    const zombies = [
      append(t.db, sessionId, { epoch, events: [said('zombie')] }),
      append(t.db, sessionId, { epoch, events: [said('zombie'), said('zombie')], appendId: 'z', expectedSequence: 2 }),
      append(t.db, sessionId, { epoch, events: [enqueued] }),
      append(t.db, sessionId, { epoch, events: [] }),
      renewSessionLease(t.db, { ...key, owner: 'a', epoch }),
      writer.append([said('zombie')]),
    ].map((call: Promise<unknown>) => ending(call));
    for (const ended of await Promise.all(zombies)) {
      expect(ended).toMatchObject({ code: 'session_lease_lost', data: { reason: 'other', currentEpoch: next.epoch } });
    }
    expect(await releaseSessionLease(t.db, { ...key, owner: 'a', epoch })).toEqual({ released: false });

    expect((await state()).rows).toEqual(before);
    expect(await logOf(sessionId)).toEqual(['before', 'after']);
    await writer.close();
  });
});

describe('two appends', () => {
  test('with the same expected sequence: one is in, the other learns where the log stands', async () => {
    const { sessionId, epoch } = await aLeased();
    const call = (at: At, text: string) => append(at, sessionId, { epoch, expectedSequence: 0, events: [said(text)] });

    const [, second] = await meet(
      t.db,
      (tx) => call(tx, 'first'),
      () => call(t.db, 'second'),
    );

    expect(second).toMatchObject({ code: 'sequence_conflict', data: { expectedSequence: 0, actualSequence: 1 } });
    expect(await logOf(sessionId)).toEqual(['first']);
  });

  test('at the end: both are in, one behind the other', async () => {
    const { sessionId, epoch } = await aLeased();

    const [, second] = await meet(
      t.db,
      (tx) => append(tx, sessionId, { epoch, events: [said('first')] }),
      () => append(t.db, sessionId, { epoch, events: [said('second'), said('third')] }),
    );

    expect(second).toMatchObject({ value: { lastSequence: 2 } });
    expect(await logOf(sessionId)).toEqual(['first', 'second', 'third']);
  });

  test('of the same append id: one effect, one answer', async () => {
    const { sessionId, epoch } = await aLeased();
    const call = (at: At) => append(at, sessionId, { epoch, appendId: 'x', events: [said('once'), said('only')] });

    const [first, second] = await meet(t.db, call, () => call(t.db));

    expect(second).toEqual({ value: { ...first, replayed: true } });
    expect(await logOf(sessionId)).toEqual(['once', 'only']);
  });

  test('the server’s in a transaction and a worker’s: both are in', async () => {
    const { key, sessionId, epoch } = await aLeased();
    const writer = await openSessionWriter(t.db, { ...key, owner: 'a' });
    await writer.append([said('1')]);

    const [, second] = await meet(
      t.db,
      (tx) => appendAsServer(tx, key, { events: [said('2')] }),
      () => writer.append([said('3')]),
    );

    expect(second).toMatchObject({ value: { lastSequence: 2 } });
    expect(writer.epoch).toBe(epoch);
    expect(await logOf(sessionId)).toEqual(['1', '2', '3']);
    await writer.close();
  });
});

describe('a session that is made twice at once', () => {
  test('by its creator and its first run: the run comes to the creator’s session and brings what it lacks', async () => {
    const sessionId = newId('session');
    const turn = () =>
      createRuns(t.db).admitTurn({
        tenantId: TENANT,
        sessionId,
        turn: { ...newTurn(), run: newRun({ projectId: 'p9' }) },
        idempotencyKey: 'k',
      });

    const [, admitted] = await meet(t.db, (tx) => createSession(tx, { tenantId: TENANT, header: { id: sessionId, note: 1 } }), turn);

    expect(admitted).toMatchObject({ value: { disposition: 'created' } });
    expect(await getSession(t.db, { tenantId: TENANT, sessionId })).toMatchObject({ projectId: 'p9' });
    expect(await getSessionLog(t.db, { tenantId: TENANT, sessionId })).toMatchObject({ header: { note: 1 }, lastSequence: -1 });
  });

  test('of two runs that bring other projects one is the first, the other is refused', async () => {
    const { sessionId } = await aSession();
    const run = (projectId: string) => ({ tenantId: TENANT, run: { ...newRun({ projectId }), sessionRef: { sessionId } } });
    const [, second] = await meet(
      t.db,
      (tx) => createRun(tx, run('p1')),
      () => createRuns(t.db).createRun(run('p2')),
    );

    expect(second).toMatchObject({ code: 'session_boundary', data: { field: 'projectId' } });
  });
});

test('an append and the end of the session’s turn do not wait for each other, nor does a new turn', async () => {
  const { run } = await aClaimedTurn(t.db);
  const sessionId = run.sessionRef?.['sessionId'] as string;

  const ends = await hold(t.db, (tx) => cancelRun(tx, { tenantId: TENANT, runId: run.id, immediate: true }));
  expect(await append(t.db, sessionId, { events: [enqueued] })).toMatchObject({ lastSequence: 0 });
  await ends.commit();
  const appends = await hold(t.db, (tx) => append(tx, sessionId, { events: [enqueued] }));
  await createRuns(t.db).admitTurn({ tenantId: TENANT, sessionId, turn: newTurn(), idempotencyKey: 'next' });
  await appends.commit();
});

test('a submission that comes while those of an older store are brought is counted with them', async () => {
  const key = await aSession();
  const submissions = ['x', 'y'].map((id) => ({ operationId: id, submissionId: `s-${id}`, kind: 'turn' }));

  const [, accepted] = await meet(
    t.db,
    (tx) => importSubmissions(tx, { ...key, submissions }),
    () => acceptSubmission(t.db, { ...key, operationId: 'a', submission: { kind: 'turn' } }),
  );

  expect(accepted).toMatchObject({ value: { status: 'accepted', acceptedSequence: 0 } });
  expect(await countUnfinishedSubmissions(t.db, key)).toEqual({ unfinished: 3, turns: 3 });
});

test('a session that is made while the erasure of its earlier life commits goes on from that life: no epoch and no place comes twice', async () => {
  const { key, epoch } = await aLeased();
  await releaseSessionLease(t.db, { ...key, owner: 'a', epoch });
  const { incarnation } = await headOf(key);
  await inTransaction(t.db, (tx) => deleteSession(tx, key));
  // The erasure has removed the rows, and left the tombstone, when it comes to wait.
  await t.db.pool.query(`
    CREATE FUNCTION public.wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER wait_at_commit AFTER DELETE ON runplane.sessions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.wait_at_commit()`);
  const client = await openClient(t.url);
  await client.query('SELECT pg_advisory_lock(77)');

  const erased = ending(eraseSessionRows({ db: t.db, incarnation }, key));
  await waitUntilBlocked(t.db, 1);
  const made = ending(createSessions(t.db).createSession({ tenantId: TENANT, header: { id: key.sessionId } }));
  await waitUntilBlocked(t.db, 2);
  await client.query('SELECT pg_advisory_unlock(77)');
  await client.end();

  expect(await erased).toEqual({ value: 'erased' });
  expect(await made).toMatchObject({ value: { replayed: false } });
  await t.db.pool.query('DROP TRIGGER wait_at_commit ON runplane.sessions');
  const { rows } = await t.db.pool.query(
    `SELECT h.last_tx >= d.last_tx AND s.last_tx >= d.last_tx AS "behind", h.lease_epoch >= $2 AND h.lease_epoch = d.lease_epoch AS "fenced" FROM runplane.session_tombstones d
       JOIN runplane.sessions s USING (tenant_id, session_id) JOIN runplane.session_heads h USING (tenant_id, session_id) WHERE d.session_id = $1`,
    [key.sessionId, epoch],
  );
  expect(rows).toEqual([{ behind: true, fenced: true }]);
  expect((await acquireSessionLease(t.db, { ...key, owner: 'next' })).epoch).toBeGreaterThan(epoch);
});

async function headOf({ sessionId }: { sessionId: string }): Promise<{ incarnation: string }> {
  const { rows } = await t.db.pool.query<{ incarnation: string }>(`SELECT incarnation FROM runplane.session_heads WHERE session_id = $1`, [
    sessionId,
  ]);
  const [head] = rows;
  if (head === undefined) throw new Error('the session is gone');
  return head;
}
