import { OutcomeUnknown } from '@runplane/contracts';
import { ensureTenant, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendSessionEvents } from './append-session-events';
import { acquireSessionLease, revokeSessionLease } from './session-lease';
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
const noise = (id: string) => appendSessionEvents(t.db, { ...key(id), events: [{ type: 'metrics/n', data: {} }] });

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
  const writer = await aWriter('w4', { leaseMs: 1_000 });
  const lost = new Promise((resolve) => writer.signal.addEventListener('abort', resolve));
  await lost;
  expect(writer.remainingMs).toBe(0);
  await expect(writer.append([said('a')])).rejects.toMatchObject({ code: 'session_lease_lost', data: { reason: 'expired' } });
  renewal.mockRestore();
  errors.mockRestore();
});

test('a writer renews in time', async () => {
  const writer = await aWriter('w5', { leaseMs: 1_000 });
  const renewal = jest.spyOn(t.db.lane, 'query');
  await new Promise<void>((resolve) => {
    const look = setInterval(() => {
      if (renewal.mock.calls.length >= 4) {
        clearInterval(look);
        resolve();
      }
    }, 20);
  });
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
