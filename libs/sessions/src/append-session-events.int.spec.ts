import { ensureTenant, inTransaction, sql } from '@runplane/database';
import { useDatabase, waitForHorizon } from '@runplane/database/testing';
import { EVENTS_PER_ROW_MAX, readFeed } from '@runplane/outbox';
import { APPEND_EVENTS_MAX, type AppendSessionEvents } from '@runplane/contracts';
import { appendAsServer } from './append-as-server';
import { appendSessionEvents } from './append-session-events';
import { acquireSessionLease, releaseSessionLease, renewSessionLease, revokeSessionLease } from './session-lease';
import { createSessions } from './sessions';

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => ensureTenant(t.db.sql, tenantId, { leaselessEventTypes: ['metrics/*'] }));

const key = (sessionId: string) => ({ tenantId, sessionId });
const create = (id: string, fields = {}) => createSessions(t.db).createSession({ tenantId, header: { id, ...fields } });
const append = (id: string, input: AppendSessionEvents) => appendSessionEvents(t.db, { ...key(id), ...input });
const said = (text: string) => ({ type: 'user/message', data: { content: text } });
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });

test('a session is created once: the same header finds it, another is refused', async () => {
  const made = await create('s1', { parent_session_id: 'p', projectId: 'p1', extra: { z: 1, a: 2 } });
  expect(made).toMatchObject({ replayed: false, log: { lastSequence: -1, header: { id: 's1', extra: { z: 1, a: 2 } } } });
  expect(await create('s1', { extra: { a: 2, z: 1 }, projectId: 'p1', parent_session_id: 'p' })).toMatchObject({ replayed: true });
  await expect(create('s1')).rejects.toEqual(coded('session_exists'));
  await expect(create('s2', { type: 'x' })).rejects.toEqual(coded('invalid_request'));
});

test('a fenced append numbers its events from 0, with ids, times and places', async () => {
  await create('s3');
  const { epoch } = await acquireSessionLease(t.db, { ...key('s3'), owner: 'w1' });
  const first = await append('s3', { epoch, expectedSequence: 0, events: [said('a')] });
  expect(first).toMatchObject({ lastSequence: 0, replayed: false, events: [{ sequence: 0 }] });
  const more = await append('s3', { epoch, events: Array.from({ length: 20 }, (_, i) => said(`${i}`)) });
  expect(more.events.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  expect(new Set(more.events.map(({ eventId }) => eventId)).size).toBe(20);
  await expect(append('s3', { epoch, expectedSequence: 5, events: [said('x')] })).rejects.toEqual(
    coded('sequence_conflict', { expectedSequence: 5, actualSequence: 21 }),
  );
  expect(await append('s3', { epoch, events: [] })).toMatchObject({ events: [], lastSequence: 20 });
});

test('the feed has a batch of events in one row, and every place of it can be gone on from', async () => {
  await create('s3f');
  const { epoch } = await acquireSessionLease(t.db, { ...key('s3f'), owner: 'w1' });
  await waitForHorizon(t.db); // of what stands before
  const start = (await readFeed(t.db.sql, { tenantId, after: 'now' })).cursor;
  for (const size of [3, 1, 5]) await append('s3f', { epoch, events: Array.from({ length: size }, (_, i) => said(`${size}.${i}`)) });
  await waitForHorizon(t.db);
  const read = async (after: string, limit: number) => (await readFeed(t.db.sql, { tenantId, after, limit })).events;
  const all = await read(start, 100);
  expect(all.map(({ sequence, data }) => [sequence, data['content']])).toEqual(
    ['3.0', '3.1', '3.2', '1.0', '5.0', '5.1', '5.2', '5.3', '5.4'].map((text, i) => [i, text]),
  );
  for (const limit of [1, 2, 4]) {
    const pages: (typeof all)[] = [];
    for (let after = start; ; after = pages.at(-1)?.at(-1)?.cursor ?? start) {
      const page = await read(after, limit);
      if (page.length === 0) break;
      pages.push(page);
    }
    expect(pages.flat()).toEqual(all);
  }
  const stored = await t.db.pool.query(
    `SELECT events::int, data FROM runplane.outbox_events WHERE stream_id = 's3f' ORDER BY tx, position`,
  );
  expect(stored.rows).toEqual([3, 1, 5].map((events) => ({ events, data: null })));
});

test('places of two rows of the outbox are further apart than an append has events', async () => {
  const { rows } = await t.db.pool.query(
    `SELECT increment_by::int AS step FROM pg_sequences WHERE schemaname = 'runplane' AND sequencename = 'outbox_events_position_seq'`,
  );
  expect(rows).toEqual([{ step: EVENTS_PER_ROW_MAX }]);
  expect(APPEND_EVENTS_MAX).toBeLessThanOrEqual(EVENTS_PER_ROW_MAX);
});

test('without a lease only some types come in', async () => {
  await create('s4');
  await expect(append('s4', { events: [said('x')] })).rejects.toEqual(coded('lease_required', { type: 'user/message' }));
  await expect(append('s4', { events: [{ type: 'session/deleted', data: {} }], epoch: 1 })).rejects.toEqual(coded('reserved_event_type'));
  await append('s4', {
    events: [
      { type: 'metrics/tokens', data: { n: 1 } },
      { type: 'channel/other', data: {} },
    ],
  });
  await expect(append('s4', { epoch: 1, events: [said('x')] })).rejects.toEqual(coded('session_lease_lost', { reason: 'none' }));
});

test('a lease goes from hand to hand with a growing epoch', async () => {
  await create('s5');
  const a = await acquireSessionLease(t.db, { ...key('s5'), owner: 'a' });
  expect(a.epoch).toBe(1);
  expect((await acquireSessionLease(t.db, { ...key('s5'), owner: 'a', leaseMs: 1_000 })).remainingMs).toBeGreaterThan(20_000);
  await expect(acquireSessionLease(t.db, { ...key('s5'), owner: 'b' })).rejects.toEqual(coded('session_leased', { owner: 'a' }));
  expect(await releaseSessionLease(t.db, { ...key('s5'), owner: 'a', epoch: 1 })).toEqual({ released: true });
  expect(await releaseSessionLease(t.db, { ...key('s5'), owner: 'a', epoch: 1 })).toEqual({ released: false });
  await expect(append('s5', { epoch: 1, events: [] })).rejects.toEqual(coded('session_lease_lost', { reason: 'expired' }));
  expect((await acquireSessionLease(t.db, { ...key('s5'), owner: 'a' })).epoch).toBe(2);
  await t.db.sql.query(
    sql`UPDATE runplane.session_heads SET lease_expires_at = runplane.app_now() WHERE session_id = 's5' RETURNING 1 AS n`,
  );
  await expect(append('s5', { epoch: 2, events: [said('x')] })).rejects.toEqual(coded('session_lease_lost', { reason: 'expired' }));
  expect((await acquireSessionLease(t.db, { ...key('s5'), owner: 'b' })).epoch).toBe(3);
  await expect(renewSessionLease(t.db, { ...key('s5'), owner: 'a', epoch: 2 })).rejects.toEqual(
    coded('session_lease_lost', { reason: 'other', currentEpoch: 3 }),
  );
  expect(await revokeSessionLease(t.db, key('s5'))).toEqual({ revoked: true });
  await expect(append('s5', { epoch: 3, events: [] })).rejects.toEqual(coded('session_lease_lost', { reason: 'other', currentEpoch: 4 }));
});

test('an append id gives the first answer again, and refuses other events', async () => {
  await create('s6');
  const { epoch } = await acquireSessionLease(t.db, { ...key('s6'), owner: 'w' });
  const events = [said('a'), said('b')];
  const first = await append('s6', { epoch, appendId: 'x', events });
  await append('s6', { epoch, events: [said('c')] });
  expect(await append('s6', { epoch, appendId: 'x', events })).toEqual({ ...first, replayed: true });
  await expect(append('s6', { epoch, appendId: 'x', events: [said('a')] })).rejects.toEqual(coded('append_conflict'));
  await expect(append('s6', { epoch, appendId: 'x', events: [...events, said('z')] })).rejects.toEqual(coded('append_conflict'));
});

test('a time far off the database is refused', async () => {
  await create('s7');
  const { epoch } = await acquireSessionLease(t.db, { ...key('s7'), owner: 'w' });
  const at = (ms: number) => append('s7', { epoch, events: [{ ...said('a'), time: new Date(Date.now() + ms).toISOString() }] });
  await at(-200_000);
  await expect(at(-400_000)).rejects.toEqual(coded('clock_skew'));
});

test('the server appends in a transaction, for a run, without a lease', async () => {
  await create('s8');
  const answer = await inTransaction(t.db, (tx) =>
    appendAsServer(tx, key('s8'), { events: [said('a'), said('b')], runId: 'run_1', commandId: 'cmd_1' }),
  );
  expect(answer.lastSequence).toBe(1);
  const [row] = await t.db.sql.query(
    sql`SELECT count(*)::int AS n FROM runplane.session_events WHERE session_id = 's8' AND run_id = 'run_1'`,
  );
  expect(row).toEqual({ n: 2 });
});

test('twenty appends at once without an expected sequence all come in, in a row', async () => {
  await create('s9');
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => append('s9', { events: [{ type: 'metrics/n', data: { i } }] })));
  expect(answers.map(({ lastSequence }) => lastSequence).sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
});
