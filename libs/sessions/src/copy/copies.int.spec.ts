import type { JsonObject, NewSessionEvent } from '@runplane/contracts';
import { COPY_OPEN_MAX, importedEventId, SESSION_HEADER_BYTES_MAX } from '@runplane/contracts';
import { ensureTenant, inTransaction, type Db, type Tx } from '@runplane/database';
import { eventually, useDatabase } from '@runplane/database/testing';
import fc from 'fast-check';
import {
  acceptSubmission,
  acquireSessionLease,
  appendAsServer,
  assertApproved,
  createSession,
  createSessions,
  ensureSession,
  forkSession,
  getSessionLog,
  importSession,
  listUnfinishedSubmissions,
  loadSession,
  readSessionEvents,
  readSessionLines,
  requestApproval,
  resolveApproval,
  upsertSession,
} from '../index';

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => Promise.all(['acme', 'other', 'third'].map((id) => ensureTenant(t.db.sql, id))));

const key = (sessionId: string, tenant = tenantId) => ({ tenantId: tenant, sessionId });
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });
const create = (id: string, fields = {}) => createSessions(t.db).createSession({ tenantId, header: { id, ...fields } });
const append = (sessionId: string, events: NewSessionEvent[]) =>
  inTransaction(t.db, (tx) => appendAsServer(tx, key(sessionId), { events }));
const exported = async (sessionId: string, tenant = tenantId): Promise<string> => {
  let text = '';
  for await (const line of readSessionLines(t.db, key(sessionId, tenant))) text += line;
  return text;
};
async function* bytesOf(text: string, chunk = 7): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += chunk) yield Promise.resolve(bytes.subarray(at, at + chunk));
}
const bring = (text: string, tenant = 'other', chunk?: number) => importSession(t.db, { tenantId: tenant, content: bytesOf(text, chunk) });

const VIEWS = [
  'context_windows',
  'context_notes',
  'context_history',
  'channel_bindings',
  'channel_inbounds',
  'channel_deliveries',
  'approvals',
  'input_requests',
  'session_views',
  'submissions',
];
/** Every row of the views of a session, without whose they are and when they were written, and what its head keeps of them. */
async function viewsOf(db: Db, sessionId: string, tenant: string): Promise<Record<string, unknown>> {
  const views: Record<string, unknown> = {};
  for (const table of VIEWS) {
    const { rows } = await db.pool.query<{ row: string }>(
      `SELECT (to_jsonb(x) - 'tenant_id' - 'session_id' - 'updated_at')::text AS row FROM runplane.${table} x WHERE tenant_id = $1 AND session_id = $2 ORDER BY 1`,
      [tenant, sessionId],
    );
    if (rows.length > 0) views[table] = rows.map(({ row }) => row);
  }
  const head = await db.pool.query(
    `SELECT driver_state, needs_recovery, window_id, first_window_id, open_submissions, (snapshot::jsonb - 'durableCursor')::text AS snapshot FROM runplane.session_heads WHERE tenant_id = $1 AND session_id = $2`,
    [tenant, sessionId],
  );
  return { ...views, head: head.rows };
}
const rowsOfCopy = async (sessionId: string, tenant: string): Promise<number> => {
  const found = await t.db.pool.query<{ n: number }>(
    `SELECT (SELECT count(*) FROM runplane.sessions WHERE tenant_id = $1 AND session_id = $2)::int + (SELECT count(*) FROM runplane.session_events WHERE tenant_id = $1 AND session_id = $2)::int AS n`,
    [tenant, sessionId],
  );
  return found.rows[0]?.n ?? -1;
};

const UPSERT = { projectId: 'p', backendProfile: 'b' };
const said = (text: string): NewSessionEvent => ({ type: 'user/message', data: { content: text } });
const open: NewSessionEvent[] = [
  { type: 'context/window-started', data: { windowId: 'w1' } },
  said('e\u0301 é 👩‍👩‍👧'),
  { type: 'approval/requested', data: { approval_id: 'a', tool_name: 't' } },
  { type: 'user-input/requested', data: { request_id: 'i', prompt: '?', expires_at_ms: 4_000_000_000_000 } },
  { type: 'submission/accepted', data: { operation_id: 'op', submission_id: 's', kind: 'turn' } },
];

describe('a fork', () => {
  test('has the log so far under ids of its own, and what was open is closed in it alone', async () => {
    await create('f1', { projectId: 'p', note: { z: 1 } });
    await append('f1', [...open, said('later')]);
    const { epoch } = await acquireSessionLease(t.db, { ...key('f1'), owner: 'w' });
    const fork = await forkSession(t.db, { ...key('f1'), newSessionId: 'f1-fork', throughSequence: 4 });
    expect(fork).toEqual({ sessionId: 'f1-fork', copiedThrough: 4, closed: 3, lastSequence: 8 });
    const [from, to] = [await readSessionEvents(t.db, key('f1')), await readSessionEvents(t.db, key('f1-fork'))];
    expect(to.events.map(({ type }) => type)).toEqual([
      ...open.map(({ type }) => type),
      ...['session/forked', 'submission/failed', 'approval/resolved', 'user-input/resolved'],
    ]);
    expect(to.events.slice(0, 5).map(({ eventId: _, ...event }) => event)).toEqual(
      from.events.slice(0, 5).map(({ eventId: _, ...event }) => event),
    );
    expect(new Set([...from.events, ...to.events].map(({ eventId }) => eventId)).size).toBe(15);
    expect((await getSessionLog(t.db, key('f1-fork'))).header).toEqual({
      id: 'f1-fork',
      projectId: 'p',
      note: { z: 1 },
      forkedFrom: { sessionId: 'f1', sequence: 4 },
    });
    expect((await listUnfinishedSubmissions(t.db, key('f1'))).submissions).toHaveLength(1);
    expect(await acquireSessionLease(t.db, { ...key('f1-fork'), owner: 'x' })).toMatchObject({ epoch: 1 });
    expect(epoch).toBe(1);
    expect(await acceptSubmission(t.db, { ...key('f1-fork'), operationId: 'new', submission: { kind: 'turn' } })).toMatchObject({
      acceptedSequence: 9,
    });
    const feed = await t.db.pool.query<{ type: string }>(
      `SELECT type FROM runplane.outbox_events WHERE stream_id = 'f1-fork' ORDER BY sequence LIMIT 1`,
    );
    expect(feed.rows).toEqual([{ type: 'session/forked' }]);
  });

  test('of a session with the largest header can be exported and imported as any other', async () => {
    const header = { id: 'f4', note: '' };
    header.note = 'x'.repeat(SESSION_HEADER_BYTES_MAX - JSON.stringify(header).length);
    await create('f4', { note: header.note });
    const newSessionId = '"'.repeat(200); // each is two bytes in JSON
    await forkSession(t.db, { ...key('f4'), newSessionId });
    expect(await bring(await exported(newSessionId), 'other', 60_000)).toMatchObject({ sessionId: newSessionId, copiedThrough: 0 });
  });

  test('of a place where more is open than one transaction may close is refused, and leaves nothing; of the place before it is not', async () => {
    const asks = Array.from({ length: COPY_OPEN_MAX + 1 }, (_, i) =>
      [
        { type: 'submission/accepted', data: { operation_id: `o${i}`, submission_id: `s${i}`, kind: 'turn' } },
        { type: 'approval/requested', data: { approval_id: `a${i}`, tool_name: 't' } },
        { type: 'user-input/requested', data: { request_id: `i${i}`, prompt: '?', expires_at_ms: 4_000_000_000_000 } },
      ].at(i % 3),
    );
    const events = [...asks, { type: 'submission/failed', data: { operation_id: 'o0', submission_id: 's0', error: 'no' } }];
    const lines = events.map((event, sequence) => JSON.stringify({ sequence, time: 1, ...event }));
    await bring(`{"type":"session","id":"f5"}\n${lines.join('\n')}`, tenantId, 60_000);
    const fork = (throughSequence: number) => forkSession(t.db, { ...key('f5'), newSessionId: 'f6', throughSequence });

    await expect(fork(COPY_OPEN_MAX)).rejects.toEqual(
      coded('invalid_request', { issues: [{ path: 'throughSequence', message: expect.stringMatching(/more than 2000/) as string }] }),
    );
    expect(await rowsOfCopy('f6', tenantId)).toBe(0);
    expect(await fork(COPY_OPEN_MAX - 1)).toMatchObject({ copiedThrough: COPY_OPEN_MAX - 1, closed: COPY_OPEN_MAX });
  });

  test('keeps what was decided in the copied part, for the very call and no other; what was decided later, it has not', async () => {
    await create('f7');
    const { epoch } = await acquireSessionLease(t.db, { ...key('f7'), owner: 'w' });
    const call = { paths: ['a'] };
    const asking = { epoch, approvalId: 'a', toolName: 'rm', arguments: call };
    await inTransaction(t.db, (tx) => requestApproval(tx, { ...key('f7'), ...asking }));
    const actor = { type: 'user' as const, id: 'ann' };
    await inTransaction(t.db, (tx) => resolveApproval(tx, { ...key('f7'), approvalId: 'a', resolution: 'approved', revision: 0, actor }));
    await forkSession(t.db, { ...key('f7'), newSessionId: 'f7-after' });
    await forkSession(t.db, { ...key('f7'), newSessionId: 'f7-before', throughSequence: 0 });
    const allowed = (sessionId: string, args: object) =>
      assertApproved(t.db, { ...key(sessionId), approvalId: 'a', arguments: args as JsonObject });

    expect(await allowed('f7-after', call)).toEqual({ ...(await allowed('f7', call)), sessionId: 'f7-after' });
    await expect(allowed('f7-after', { paths: ['b'] })).rejects.toEqual(coded('approval_mismatch'));
    await expect(allowed('f7-before', call)).rejects.toEqual(coded('not_approved', { state: 'cancelled' }));
  });

  test('of nothing is an empty session; an id in use, a place beyond the end and a session that is not there are refused', async () => {
    await create('f2');
    await append('f2', [said('a')]);
    expect(await forkSession(t.db, { ...key('f2'), newSessionId: 'f2-empty', throughSequence: -1 })).toMatchObject({
      copiedThrough: -1,
      lastSequence: 0,
    });
    await expect(forkSession(t.db, { ...key('f2'), newSessionId: 'f2-empty' })).rejects.toEqual(coded('session_exists'));
    await expect(forkSession(t.db, { ...key('f2'), newSessionId: 'f2' })).rejects.toEqual(coded('session_exists'));
    await expect(forkSession(t.db, { ...key('f2'), newSessionId: 'f3', throughSequence: 1 })).rejects.toEqual(coded('invalid_request'));
    await expect(forkSession(t.db, { ...key('none'), newSessionId: 'f3' })).rejects.toEqual(coded('session_not_found'));
    await expect(forkSession(t.db, { ...key('f2', 'other'), newSessionId: 'f3' })).rejects.toEqual(coded('session_not_found'));
    expect(await rowsOfCopy('f3', tenantId)).toBe(0);
  });
});

describe('an import', () => {
  test('gives back the very text that was exported, with the same views', async () => {
    await create('i1', { projectId: 'p', ключ: 'я' });
    await append('i1', [
      ...open.slice(0, 2),
      { type: 'custom/thing', data: { z: 1, a: [1.5e-7, 0.1, '\u2028'], nested: { '2': 1, '1': 2 } } },
    ]);
    const text = await exported('i1');
    expect(await bring(text)).toEqual({ sessionId: 'i1', copiedThrough: 2, lastSequence: 2, closed: 0 });
    expect(await exported('i1', 'other')).toBe(text);
    expect(await viewsOf(t.db, 'i1', 'other')).toEqual(await viewsOf(t.db, 'i1', tenantId));
    const { events } = await readSessionEvents(t.db, key('i1', 'other'));
    expect(events.map(({ eventId }) => eventId)).toEqual([0, 1, 2].map((sequence) => importedEventId('i1', sequence)));
    await expect(bring(text)).rejects.toEqual(coded('session_exists'));
    expect(await t.db.pool.query(`SELECT FROM runplane.outbox_events WHERE tenant_id = 'other' AND stream_id = 'i1'`)).toMatchObject({
      rowCount: 0,
    });
  });

  test('reads the originals’ lines, keeps them as they are, and closes what is open', async () => {
    const lines = [
      '{"type":"session","id":"i2",  "x":1}',
      '{ "sequence":0,"type":"submission/accepted","time":1700000000123,"data":{"operation_id":"op","submission_id":"s","kind":"user-input"},"turn_id":"t1","step_id":null }',
      '{"sequence":1,"type":"user/message","time":1700000000123,"data":{"content":"a\\u0000b"},"turn_id":null,"step_id":null}',
    ];
    expect(await bring(lines.join('\n'))).toEqual({ sessionId: 'i2', copiedThrough: 1, lastSequence: 2, closed: 1 });
    const text = await exported('i2', 'other');
    expect(text.split('\n').slice(1, 3)).toEqual(lines.slice(1));
    const { events } = await readSessionEvents(t.db, key('i2', 'other'));
    expect(events).toMatchObject([
      { time: '2023-11-14T22:13:20.123Z', turnId: 't1' },
      { data: { content: 'a\uFFFDb' } },
      { type: 'submission/failed', data: { operation_id: 'op', error: 'session-imported' } },
    ]);
  });

  const good = (sequence: number) => `{"sequence":${sequence},"type":"user/message","time":1,"data":{}}`;
  test.each([
    ['nothing', '', 1, /no header/],
    ['no header', good(0), 1, /type is not session/],
    ['a header without an id', '{"type":"session"}', 1, /id/],
    ['a gap', `{"type":"session","id":"bad"}\n${good(0)}\n${good(2)}`, 3, /sequence is 2, not 1/],
    ['a repeat', `{"type":"session","id":"bad"}\n${good(0)}\n${good(0)}`, 3, /sequence is 0/],
    ['no JSON', `{"type":"session","id":"bad"}\n${good(0)}\n{`, 3, /no JSON/],
    ['an empty line', `{"type":"session","id":"bad"}\n\n${good(0)}`, 2, /empty/],
    ['an event without data', `{"type":"session","id":"bad"}\n{"sequence":0,"type":"x","time":1}`, 2, /data/],
    ['a type that is none', `{"type":"session","id":"bad"}\n{"sequence":0,"type":"X Y","time":1,"data":{}}`, 2, /type/],
    [
      'a known type with other data',
      `{"type":"session","id":"bad"}\n{"sequence":0,"type":"approval/requested","time":1,"data":{}}`,
      2,
      /approval_id/,
    ],
    ['a time before the first year', `{"type":"session","id":"bad"}\n${good(0).replace(/"time":[^,]+/, '"time":"0000-12-31T23:59:59Z"')}`, 2, /time/], // prettier-ignore
    ['a time behind the last year', `{"type":"session","id":"bad"}\n${good(0).replace(/"time":[^,]+/, '"time":"9999-12-31T23:59:59-01:00"')}`, 2, /time/], // prettier-ignore
    ['a key with NUL', `{"type":"session","id":"bad"}\n{"sequence":0,"type":"x","time":1,"data":{"\\u0000":1}}`, 2, /./],
    [
      'an event that is too large',
      `{"type":"session","id":"bad"}\n${good(0).replace('{}', `{"a":"${'x'.repeat(1_100_000)}"}`)}`,
      2,
      /more than/,
    ],
    [
      'late trouble, behind a batch',
      `{"type":"session","id":"bad"}\n${Array.from({ length: 600 }, (_, i) => good(i)).join('\n')}\nx`,
      602,
      /no JSON/,
    ],
  ])('of %s is refused with its line, and leaves nothing', async (_name, text, line, reason) => {
    await expect(bring(text, 'other', 60_000)).rejects.toEqual(
      coded('invalid_import', { line, reason: expect.stringMatching(reason) as string }),
    );
    expect(await rowsOfCopy('bad', 'other')).toBe(0);
  });

  test('that leaves more open than one transaction may close is refused, with its last line, and leaves nothing', async () => {
    const line = (sequence: number) =>
      `{"sequence":${sequence},"type":"submission/accepted","time":1,"data":{"operation_id":"o${sequence}","submission_id":"s${sequence}","kind":"turn"}}`;
    const text = `{"type":"session","id":"bad"}\n${Array.from({ length: COPY_OPEN_MAX + 1 }, (_, i) => line(i)).join('\n')}`;
    const refused = coded('invalid_import', { line: COPY_OPEN_MAX + 2, reason: expect.stringMatching(/more than 2000/) as string });
    await expect(bring(text, 'other', 60_000)).rejects.toEqual(refused);
    expect(await rowsOfCopy('bad', 'other')).toBe(0);
  });

  test('of bytes that are no UTF-8 is refused; a stream that breaks leaves nothing', async () => {
    const broken = importSession(t.db, {
      tenantId: 'other',
      content: (async function* () {
        yield Promise.resolve(Buffer.from('{"type":"session","id":"bad"}\n'));
        yield Promise.resolve(Buffer.from([0xff, 0x0a]));
      })(),
    });
    await expect(broken).rejects.toEqual(coded('invalid_import', { line: 2 }));
    const cut = importSession(t.db, {
      tenantId: 'other',
      content: (async function* () {
        yield Promise.resolve(Buffer.from(`{"type":"session","id":"bad"}\n${good(0)}\n`));
        throw new Error('connection lost');
      })(),
    });
    await expect(cut).rejects.toThrow('connection lost');
    expect(await rowsOfCopy('bad', 'other')).toBe(0);
    await expect(getSessionLog(t.db, key('bad', 'other'))).rejects.toEqual(coded('session_not_found'));
  });

  test('while it goes on nobody sees the session, and a twin finds the id taken', async () => {
    let seen: unknown;
    let twin: unknown;
    let made: unknown[] = [];
    const content = (async function* () {
      yield Buffer.from('{"type":"session","id":"slow"}\n');
      yield Buffer.from(`${Array.from({ length: 600 }, (_, i) => good(i)).join('\n')}\n`);
      seen = await getSessionLog(t.db, key('slow', 'other')).catch((error: unknown) => error);
      twin = await bring(`{"type":"session","id":"slow"}\n`).catch((error: unknown) => error);
      const { createSession: make, upsertSession: upsert } = createSessions(t.db);
      made = [
        await make({ tenantId: 'other', header: { id: 'slow' } }).catch((error: unknown) => error),
        await upsert({ ...key('slow', 'other'), session: UPSERT }).catch((error: unknown) => error),
      ];
      yield Buffer.from(`${good(600)}\n`);
    })();
    expect(await importSession(t.db, { tenantId: 'other', content })).toMatchObject({ copiedThrough: 600, closed: 0 });
    expect(seen).toEqual(coded('session_not_found'));
    for (const refused of [twin, ...made]) expect(refused).toEqual(coded('session_exists'));
    const loaded = await loadSession(t.db, key('slow', 'other'));
    let n = 0;
    for await (const event of loaded.events) n += Number(event.sequence === n);
    expect(n).toBe(601);
  });
});

test.each<[string, (tx: Tx, id: string) => Promise<unknown>]>([
  ['a creation', (tx, id) => createSession(tx, { tenantId: 'other', header: { id } })],
  ['an upsert', (tx, id) => upsertSession(tx, { ...key(id, 'other'), session: UPSERT })],
  ['a first run', (tx, id) => ensureSession(tx, 'other', { sessionId: id }, UPSERT)],
])('%s that finds the id taken by a copy that fails at this moment is to be repeated', async (name, make) => {
  let fail = (_: Error): void => undefined;
  const never = new Promise<never>((_, reject) => (fail = reject));
  const content = (async function* () {
    yield Buffer.from(`{"type":"session","id":"${name}"}\n`);
    yield await never;
  })();

  const making = inTransaction(t.db, (tx) => {
    const query = tx.query.bind(tx);
    jest.spyOn(tx, 'query').mockImplementation(async (statement) => {
      if (!statement.text.includes('INSERT INTO runplane.sessions')) return query(statement);
      const importing = importSession(t.db, { tenantId: 'other', content }).catch((error: unknown) => error);
      await eventually(async () => (await rowsOfCopy(name, 'other')) === 1);
      const found = await query(statement);
      fail(new Error('connection lost'));
      await importing;
      return found;
    });
    return make(tx, name);
  });

  await expect(making).rejects.toEqual(coded('transaction_conflict'));
  await inTransaction(t.db, (tx) => make(tx, name));
});

test('what is exported, imported and exported again is the same to the byte, and so are its views', async () => {
  const text = fc.string({ unit: 'grapheme', maxLength: 12 });
  const event = fc.oneof(
    text.map(said),
    fc
      .tuple(
        text,
        fc.oneof(
          text,
          fc.integer(),
          fc.boolean(),
          fc.constant(null),
          fc.array(text, { maxLength: 3 }),
          fc.dictionary(fc.string({ unit: 'grapheme-ascii', maxLength: 4 }), fc.integer()),
        ),
      )
      .map(([a, b]): NewSessionEvent => ({ type: 'custom/any', data: { a, b } })),
    text.map((id): NewSessionEvent => ({ type: 'context/note-appended', data: { path: `p${id.length % 3}`, text: id } })),
    fc.nat(3).map((n): NewSessionEvent => ({ type: 'context/window-started', data: { windowId: `w${n}` } })),
    fc.nat(3).map((n): NewSessionEvent => ({ type: 'channel/delivery/queued', data: { delivery_id: `d${n}` } })),
    fc.nat(2).map((n): NewSessionEvent => ({ type: 'turn/start', turnId: `t${n}`, data: {} })),
  );
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(event, { minLength: 1, maxLength: 12 }),
      fc.dictionary(fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 5 }), fc.integer()),
      async (events, fields) => {
        const id = `prop-${(runs += 1)}`;
        const { type: _, id: __, projectId: ___, ...rest } = fields;
        await create(id, { rest });
        await append(id, events);
        const before = await exported(id);
        expect(await bring(before, 'third', 1_000)).toMatchObject({ closed: 0, lastSequence: events.length - 1 });
        expect(await exported(id, 'third')).toBe(before);
        expect(await viewsOf(t.db, id, 'third')).toEqual(await viewsOf(t.db, id, tenantId));
      },
    ),
    { numRuns: 5 },
  );
});
