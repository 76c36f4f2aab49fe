import type { NewSessionEvent } from '@runplane/contracts';
import { ensureTenant, inTransaction, type Db } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon, waitUntilBlocked } from '@runplane/database/testing';
import { readFeed } from '@runplane/outbox';
import fc from 'fast-check';
import { appendCoalescer } from './append-coalescer';
import { appendTogether, isPlain, type PlainAppend } from './append-together.sql';
import { prepare, readForAppend, type WantedAppend } from './append-events';
import { appendSessionEvents } from './append-session-events';
import { projectionsOf } from './projections';
import { storableSessionEvents } from './session-event-input';
import { acquireSessionLease } from './session-lease';
import { createSessions } from './sessions';
import { openSessionWriter, type SessionWriter } from './session-writer';

// Appends to several sessions that arrive together: one statement, a verdict for each.

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => ensureTenant(t.db.sql, tenantId));

const key = (sessionId: string) => ({ tenantId, sessionId });
const coded = (code: string) => expect.objectContaining({ code });
const create = (id: string) => createSessions(t.db).createSession({ tenantId, header: { id } });
const said = (text: string): NewSessionEvent => ({ type: 'user/message', data: { content: text } });

/** An append as it is before it is written: read, judged and folded. */
async function prepared(
  sessionId: string,
  events: readonly NewSessionEvent[],
  { epoch, appendId }: { epoch: number; appendId?: string },
): Promise<PlainAppend> {
  const wanted: WantedAppend = { ...key(sessionId), events: storableSessionEvents(events), epoch, sequence: undefined, appendId };
  const found = await readForAppend(t.db.sql, wanted, projectionsOf(t.db));
  const ready = await prepare(t.db.sql, wanted, found);
  if (ready.kind !== 'write') throw new Error('nothing to write');
  const { lastSequence, viewsEpoch } = found.head;
  return { ...key(sessionId), batch: ready.batch, guard: { lastSequence, viewsEpoch, epoch }, appendId: appendId ?? null };
}

async function leased(id: string): Promise<number> {
  await create(id);
  return (await acquireSessionLease(t.db, { ...key(id), owner: 'w' })).epoch;
}

const logOf = async (db: Db, sessionId: string) =>
  (
    await db.pool.query<Record<string, unknown>>(
      `SELECT e.sequence::int, e.type, e.data::text, e.turn_id, e.step_id, e.append_id, e.append_count, i.role, i.content, i.window_id, i.tool_name
       FROM runplane.session_events e LEFT JOIN runplane.context_history i USING (tenant_id, session_id, sequence)
       WHERE e.session_id = $1 ORDER BY e.sequence`,
      [sessionId],
    )
  ).rows;
const headOf = async (db: Db, sessionId: string) =>
  (
    await db.pool.query<Record<string, unknown>>(
      `SELECT last_sequence::int, snapshot::text, driver_state, needs_recovery, window_id, views_version FROM runplane.session_heads WHERE session_id = $1`,
      [sessionId],
    )
  ).rows[0];

test('many writers at once share statements, and each log is whole, in the feed too', async () => {
  const ids = Array.from({ length: 12 }, (_, i) => `many-${i}`);
  for (const id of ids) await create(id);
  await waitForHorizon(t.db); // of what stands before
  const start = (await readFeed(t.db.sql, { tenantId, after: 'now' })).cursor;
  const writers = await Promise.all(ids.map((sessionId) => openSessionWriter(t.db, { tenantId, sessionId })));
  const write = async (writer: SessionWriter, i: number): Promise<void> => {
    for (let n = 0; n < 6; n += 1) {
      const events = Array.from({ length: 1 + ((n + i) % 3) }, (_, place) => said(`${i}.${n}.${place}`));
      const { lastSequence, events: placed } = await writer.append(events);
      expect(placed.map(({ sequence }) => sequence)).toEqual(events.map((_, place) => lastSequence - events.length + 1 + place));
    }
  };
  await Promise.all(writers.map(write));
  await Promise.all(writers.map((writer) => writer.close()));
  const stats = t.db.coalescers.get('session-append')?.stats;
  expect(stats?.together).toBeGreaterThan(12);
  expect(stats?.together).toBeGreaterThan(stats?.batches ?? 0);
  for (const [i, id] of ids.entries()) {
    const said = Array.from({ length: 6 }, (_, n) => Array.from({ length: 1 + ((n + i) % 3) }, (_, place) => `${i}.${n}.${place}`)).flat();
    expect((await logOf(t.db, id)).map(({ sequence, content }) => [sequence, content])).toEqual(
      said.map((text, sequence) => [sequence, text]),
    );
  }
  await waitForHorizon(t.db);
  const told = new Map<string, number[]>();
  for (let after = start; ;) {
    const page = await readFeed(t.db.sql, { tenantId, after, limit: 50 });
    for (const { streamId, sequence } of page.events) told.set(streamId, [...(told.get(streamId) ?? []), sequence]);
    after = page.cursor;
    if (!page.more) break;
  }
  for (const id of ids) expect(told.get(id)).toEqual((await logOf(t.db, id)).map(({ sequence }) => sequence));
});

test('each is judged by itself: what is refused of one takes nothing from the others', async () => {
  const refused = ['moved', 'rebuilt', 'taken', 'ended', 'released', 'deleted', 'late', 'held'] as const;
  const appends = [await prepared('fine', [said('a'), said('b')], { epoch: await leased('fine'), appendId: 'x' })];
  for (const id of refused) appends.push(await prepared(id, [said('a')], { epoch: await leased(id) }));
  const late = appends[refused.indexOf('late') + 1] as PlainAppend;
  appends[refused.indexOf('late') + 1] = {
    ...late,
    batch: { ...late.batch, events: late.batch.events.map((each) => ({ ...each, time: each.time - 3_600_000 })) },
  };
  appends.push({ ...(appends[0] as PlainAppend), sessionId: 'absent' });
  await ensureTenant(t.db.sql, 'other');
  await createSessions(t.db).createSession({ tenantId: 'other', header: { id: 'fine' } });
  await acquireSessionLease(t.db, { tenantId: 'other', sessionId: 'fine', owner: 'w' });
  await appendSessionEvents(t.db, { ...key('moved'), epoch: 1, events: [said('other')] });
  const set = (id: string, change: string) => t.db.pool.query(`UPDATE runplane.session_heads SET ${change} WHERE session_id = $1`, [id]);
  await set('rebuilt', 'views_epoch = views_epoch + 1');
  await set('taken', 'lease_epoch = lease_epoch + 1');
  await set('ended', 'lease_expires_at = runplane.app_now()');
  await set('released', 'lease_owner = NULL, lease_expires_at = NULL');
  await t.db.pool.query(`UPDATE runplane.sessions SET deleted_at = now() WHERE session_id = 'deleted'`);
  await set('deleted', 'deleted_at = now()');
  const holder = await openClient(t.url);
  await holder.query(`BEGIN; SELECT FROM runplane.session_heads WHERE session_id = 'held' FOR UPDATE`);

  const verdicts = await appendTogether(t.db.sql, appends);

  await holder.query('ROLLBACK');
  await holder.end();
  expect(Object.fromEntries(appends.map(({ sessionId }, i) => [sessionId, verdicts[i]?.ok]))).toEqual({
    ...{ fine: true, moved: false, rebuilt: false, taken: false, ended: false, released: false, deleted: false, late: false },
    ...{ held: undefined, absent: undefined },
  });
  expect((await logOf(t.db, 'fine')).map(({ content, append_id, append_count }) => [content, append_id, append_count])).toEqual([
    ['a', 'x', 2],
    ['b', null, null],
  ]);
  for (const id of refused) expect(await logOf(t.db, id)).toHaveLength(id === 'moved' ? 1 : 0);
  await set('deleted', 'deleted_at = NULL');
  await t.db.pool.query(`UPDATE runplane.sessions SET deleted_at = NULL WHERE session_id = 'deleted'`);
});

test('a session that somebody holds waits for him alone, and the others do not wait', async () => {
  const ids = Array.from({ length: 8 }, (_, i) => `beside-${i}`);
  const epochs = await Promise.all(ids.map(leased));
  const holder = await openClient(t.url);
  await holder.query(`BEGIN; SELECT FROM runplane.session_heads WHERE session_id = 'beside-0' FOR UPDATE`);
  const [slow, ...others] = ids.map((id, i) => appendSessionEvents(t.db, { ...key(id), epoch: epochs[i], events: [said('a')] }));
  for (const other of others) expect(await other).toMatchObject({ lastSequence: 0 });
  await waitUntilBlocked(t.db, 1);
  await holder.query('COMMIT');
  await holder.end();
  expect(await slow).toMatchObject({ lastSequence: 0 });
});

test('a batch whose backend is killed is written once; of an append without an id nobody knows', async () => {
  const ids = Array.from({ length: 9 }, (_, i) => `killed-${i}`);
  const appends: PlainAppend[] = [];
  for (const id of ids)
    appends.push(await prepared(id, [said('once')], { epoch: await leased(id), ...(id === 'killed-8' ? {} : { appendId: 'x' }) }));
  await appendSessionEvents(t.db, { ...key('killed-first'), epoch: await leased('killed-first'), events: [said('makes it')] });
  const coalescer = appendCoalescer(t.db, () => Promise.reject(new Error('it is made already')));
  const blocker = await openClient(t.url);
  await blocker.query('BEGIN; LOCK TABLE runplane.session_events IN EXCLUSIVE MODE'); // each insert waits for it, in the middle of its statement
  const answers = appends.map((append) =>
    coalescer.run(append).then(
      ({ ok }) => ok,
      ({ code }: { code: string }) => code,
    ),
  );
  const blocked = await waitUntilBlocked(t.db, 5); // four by themselves, and a batch
  await blocker.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY ($1) AND query LIKE '%c.read_sequence%'`, [
    blocked,
  ]);
  expect(await answers[8]).toBe('outcome_unknown');
  await blocker.query('COMMIT');
  await blocker.end();
  expect(await Promise.all(answers)).toEqual([...Array.from({ length: 8 }, () => true), 'outcome_unknown']);
  for (const id of ids) expect(await logOf(t.db, id)).toHaveLength(id === 'killed-8' ? 0 : 1);
});

const event: fc.Arbitrary<NewSessionEvent> = fc.oneof(
  fc.record({ type: fc.constant('user/message'), data: fc.record({ content: fc.string({ unit: 'grapheme' }) }) }),
  fc.record({ type: fc.constant('assistant/message'), data: fc.record({ message: fc.record({ content: fc.string() }) }) }),
  fc.record({
    type: fc.constant('tool/call'),
    data: fc.record({ name: fc.constantFrom('sh', ''), arguments: fc.json() }),
    turnId: fc.constantFrom('t1', 't2'),
  }),
  fc.record({ type: fc.constantFrom('turn/start', 'turn/end'), turnId: fc.constantFrom('t1', 't2'), data: fc.constant({}) }),
  fc.record({ type: fc.constant('step/start'), turnId: fc.constant('t1'), stepId: fc.constant('s1'), data: fc.constant({}) }),
  fc.record({ type: fc.constant('custom/x'), data: fc.record({ n: fc.integer() }) }),
);

test('together writes what alone writes', async () => {
  let round = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(event, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 5 }), async (batches) => {
      round += 1;
      const name = (how: string, i: number) => `${how}-${round}-${i}`;
      const shared: PlainAppend[] = [];
      for (const [i, events] of batches.entries()) {
        const epoch = await leased(name('alone', i));
        await appendSessionEvents(t.db, { ...key(name('alone', i)), epoch, events, appendId: 'x' });
        const append = await prepared(name('shared', i), events, { epoch: await leased(name('shared', i)), appendId: 'x' });
        expect([append.batch.parts.map(({ sql }) => sql), Object.keys(append.batch.head), isPlain(append.batch)]).toEqual([
          [],
          expect.anything(),
          true,
        ]);
        shared.push(append);
      }
      expect((await appendTogether(t.db.sql, shared)).map((verdict) => verdict?.ok)).toEqual(batches.map(() => true));
      for (const [i] of batches.entries()) {
        const legacy = (rows: unknown) => JSON.parse(JSON.stringify(rows).replaceAll(name('alone', i), name('shared', i))) as unknown;
        expect(await logOf(t.db, name('shared', i))).toEqual(legacy(await logOf(t.db, name('alone', i))));
        expect(await headOf(t.db, name('shared', i))).toEqual(legacy(await headOf(t.db, name('alone', i))));
      }
    }),
    { numRuns: 8 },
  );
});

test('what changes more than the history goes alone, and a transaction too', async () => {
  const epoch = await leased('more');
  const before = t.db.coalescers.get('session-append')?.stats.calls ?? 0;
  await appendSessionEvents(t.db, { ...key('more'), epoch, events: [{ type: 'context/window-started', data: { windowId: 'w1' } }] });
  await inTransaction(t.db, (tx) => appendSessionEvents(tx, { ...key('more'), epoch, events: [said('a')] }));
  expect(t.db.coalescers.get('session-append')?.stats.calls ?? 0).toBe(before);
  await expect(appendSessionEvents(t.db, { ...key('nobody'), epoch: 1, events: [said('a')] })).rejects.toEqual(coded('session_not_found'));
});
