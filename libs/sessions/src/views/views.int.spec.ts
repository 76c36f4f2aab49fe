import { contentHash, encodeCursor, type NewSessionEvent, type SessionProjection } from '@runplane/contracts';
import { ensureTenant, inTransaction, openDb, sql, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getSessionLog } from '../create-session';
import {
  acquireSessionLease,
  appendAsServer,
  appendSessionEvents,
  createSessions,
  getContextNote,
  listChannelBindings,
  listChannelDeliveries,
  listContextHistory,
  listContextNotes,
  listContextWindows,
  listPendingApprovals,
  listPendingInputs,
  listProjections,
  listRecoveryCandidates,
  listSessionProjections,
  pruneChannelsOnce,
  readSnapshot,
  rebuildSession,
  searchContextHistory,
} from '../index';

// What is read of a session's log, through the appends that feed it.

const t = useDatabase();
const tenantId = 'acme';
const key = (sessionId: string) => ({ tenantId, sessionId });
beforeAll(async () => {
  for (const tenant of [tenantId, 'other']) await ensureTenant(t.db.sql, tenant);
});

async function session(
  sessionId: string,
  events: NewSessionEvent[],
  { db = t.db, header = {} }: { db?: Db; header?: object } = {},
): Promise<number> {
  await createSessions(db).createSession({ tenantId, header: { id: sessionId, ...header } });
  const { epoch } = await acquireSessionLease(db, { ...key(sessionId), owner: 'w' });
  if (events.length > 0) await appendSessionEvents(db, { ...key(sessionId), epoch, events });
  return epoch;
}
const event = (type: string, data: object = {}, turnId?: string): NewSessionEvent => ({
  type,
  data: data as NewSessionEvent['data'],
  turnId,
});
const coded = (code: string) => expect.objectContaining({ code });
const here = { channel_id: 'tg', account_id: 'acct', conversation_id: '42' };

/** Follows a list to its end, page by page. */
async function all<Item>(
  list: (cursor: string | undefined) => Promise<{ items: readonly Item[]; cursor: string | null }>,
): Promise<Item[]> {
  const found: Item[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await list(cursor);
    found.push(...page.items);
    cursor = page.cursor;
  }
  return found;
}

test('a snapshot tells how a session stands, with its place in log and feed', async () => {
  const epoch = await session('snap', []);
  expect(await readSnapshot(t.db, key('snap'))).toEqual({ snapshot: null });
  const log = [
    event('turn/start', {}, 't1'),
    event('approval/requested', { approval_id: 'a' }, 't1'),
    event('context/window-started', { windowId: 'w' }),
    event('other/thing'),
  ];
  const { events } = await appendSessionEvents(t.db, { ...key('snap'), epoch, events: log });
  const { snapshot } = await readSnapshot(t.db, key('snap'));
  expect(snapshot).toEqual({
    schemaVersion: 1,
    activeTurnId: 't1',
    activeStepId: null,
    driverState: 'approval_waiting',
    inbox: { nextTurn: [], nextStep: [] },
    hasInboxSplices: false,
    pendingApprovalIds: ['a'],
    pendingUserInputIds: [],
    contextWindowId: 'w',
    sequence: 3,
    durableCursor: events[3]?.cursor,
    lastEventType: 'other/thing',
    anomalyCount: 0,
    anomalies: [],
  });
  await expect(readSnapshot(t.db, { tenantId: 'other', sessionId: 'snap' })).rejects.toEqual(coded('session_not_found'));
});

test('a cold start finds the sessions that somebody has to look after, page by page', async () => {
  for (const id of ['cold-1', 'cold-2', 'cold-3']) await session(id, [event('turn/start', {}, 't1')]);
  await session('cold-4', [event('turn/start', {}, 't1'), event('turn/end', {}, 't1')]);
  const found = await all(async (cursor) => {
    const { candidates, ...page } = await listRecoveryCandidates(t.db, { tenantId, limit: 2, cursor });
    return { items: candidates, ...page };
  });
  expect(found.map(({ sessionId }) => sessionId).filter((id) => id.startsWith('cold'))).toEqual(['cold-1', 'cold-2', 'cold-3']);
  expect(found[0]?.snapshot).toMatchObject({ activeTurnId: 't1', sequence: 0 });
  expect(await listRecoveryCandidates(t.db, { tenantId: 'other' })).toEqual({ candidates: [], cursor: null });
  const { cursor: ofAcme } = await listRecoveryCandidates(t.db, { tenantId, limit: 1 });
  await expect(listRecoveryCandidates(t.db, { tenantId: 'other', cursor: ofAcme ?? '' })).rejects.toEqual(coded('invalid_cursor'));
});

test('channels are read as lists, and as the one document they once were', async () => {
  const epoch = await session('chan', [
    event('channel/bound', { ...here, note: 'é' }),
    event('channel/bound', { ...here, conversationId: 'x', conversation_id: '43' }),
    event('channel/unbound', { ...here, conversation_id: '43' }),
    event('channel/inbound', { ...here, message_id: 9, text: 'hi' }),
    event('input/enqueued', { input_id: 'i', message_source: here }, 't1'),
    ...['d1', 'd2', 'd3', 'd4'].map((id) => event('channel/delivery/queued', { delivery_id: id, to: id })),
    event('channel/delivery/failed', { delivery_id: 'd2', error: 'blocked' }),
    event('channel/delivery/succeeded', { delivery_id: 'd1' }),
    event('channel/delivery/failed', { delivery_id: 'd3' }),
    event('channel/delivery/queued', { delivery_id: 'd3', again: true }),
  ]);
  const address = '["tg","acct","42"]';
  const { projections } = await listProjections(t.db, { tenantId, key: 'channelState' });
  const [state] = projections.filter(({ sessionId }) => sessionId === 'chan');
  expect(state).toMatchObject({ key: 'channelState', sequence: 12, appliedSequence: 12, staleReason: null });
  expect(state?.value).toEqual({
    bindings: { [address]: { ...here, note: 'é' } },
    inbounds: { [`${address}:"9"`]: { ...here, message_id: 9, text: 'hi' } },
    turn_routes: { t1: here },
    pending_deliveries: { d4: { delivery_id: 'd4', to: 'd4' }, d3: { delivery_id: 'd3', again: true } },
    completed_deliveries: ['d2', 'd1'],
  });
  expect(await listChannelBindings(t.db, key('chan'))).toEqual({
    bindings: [{ address, sequence: 0, data: { ...here, note: 'é' } }],
    cursor: null,
  });
  const deliveries = (over: object = {}) =>
    all(async (cursor) => {
      const { deliveries: items, ...page } = await listChannelDeliveries(t.db, { ...key('chan'), limit: 1, cursor, ...over });
      return { items, ...page };
    });
  expect((await deliveries()).map(({ deliveryId, state: is }) => [deliveryId, is])).toEqual([
    ['d1', 'succeeded'],
    ['d2', 'failed'],
    ['d3', 'queued'],
    ['d4', 'queued'],
  ]);
  expect(await deliveries({ state: 'failed' })).toMatchObject([
    { deliveryId: 'd2', error: 'blocked', data: { to: 'd2' }, queuedSequence: 6, completedSequence: 9 },
  ]);

  // The same message again: its first place is the answer, among others it is refused.
  const again = event('channel/inbound', { ...here, messageId: '9' });
  expect(await appendSessionEvents(t.db, { ...key('chan'), events: [again] })).toMatchObject({ replayed: true, events: [{ sequence: 3 }] });
  await expect(appendSessionEvents(t.db, { ...key('chan'), epoch, events: [again, event('other/thing')] })).rejects.toEqual(
    coded('duplicate_inbound'),
  );
});

test('what is over in a channel is removed after its time, and the log keeps it', async () => {
  const prune = async (): Promise<void> => {
    while ((await pruneChannelsOnce(t.db, { keptMs: 0, routeKeptMs: 0 })).changed > 0);
  };
  await prune(); // of other tests
  const epoch = await session('old', [
    event('channel/inbound', { ...here, message_id: 1 }),
    event('channel/inbound', { ...here, message_id: 2 }),
    event('channel/delivery/queued', { delivery_id: 'open' }),
    event('channel/delivery/succeeded', { delivery_id: 'done' }),
    event('input/enqueued', { input_id: 'i', message_source: here }, 't1'),
    event('input/enqueued', { input_id: 'j', message_source: here }, 't2'),
    event('turn/end', {}, 't1'),
  ]);
  const stateOfOld = async () => (await listSessionProjections(t.db, key('old'))).projections[0]?.value;
  expect(await pruneChannelsOnce(t.db)).toMatchObject({ changed: 0 });
  await pruneChannelsOnce(t.db, { keptMs: 0, routeKeptMs: 0, limit: 1 });
  expect(Object.keys((await stateOfOld())?.['inbounds'] as object)).toHaveLength(1);
  await prune();
  expect(await stateOfOld()).toEqual({
    bindings: {},
    inbounds: {},
    turn_routes: { t2: here },
    pending_deliveries: { open: { delivery_id: 'open' } },
    completed_deliveries: [],
  });
  const again = event('channel/inbound', { ...here, message_id: 1 });
  expect(await appendSessionEvents(t.db, { ...key('old'), epoch, events: [again] })).toMatchObject({ replayed: false });
  await rebuildSession(t.db, key('old'), { owner: 'test' });
  expect(Object.keys((await stateOfOld())?.['inbounds'] as object)).toHaveLength(2);
});

test('windows, notes and history are read as they stand', async () => {
  const words = ['the quick fox', 'The Quick Fox jumps', 'a\u{1F98A} fox', 'nothing', 'quick lazy dogs'];
  await session('ctx', [
    event('user/message', { content: words[0] }),
    event('context/window-started', { windowId: 'w1' }),
    event('assistant/message', { message: { content: words[1] } }),
    event('tool/call', { name: 'sh', arguments: { content: words[2] } }),
    event('compaction/checkpoint', { windowId: 'w2', carriedEventSequences: [2] }),
    event('context/window-started', { windowId: 'w2', previousWindowId: 'w1', trigger: 'compaction' }),
    event('user/message', { content: words[3] }),
    event('user/message', { content: words[4] }),
    event('context/note-written', { path: 'a\u0001', text: 'x' }),
    event('context/note-appended', { path: 'a\u0001', text: 'é' }),
    event('context/note-appended', { path: 'b', text: 'new' }),
  ]);
  expect(await listContextWindows(t.db, key('ctx'))).toEqual({
    windows: [
      { windowId: 'w2', previousWindowId: 'w1', startedSequence: 5, trigger: 'compaction', isCurrent: true },
      { windowId: 'w1', previousWindowId: null, startedSequence: 1, trigger: 'initial', isCurrent: false },
    ],
    cursor: null,
  });
  const paged = await listContextNotes(t.db, { ...key('ctx'), limit: 1 });
  expect(paged.notes).toEqual([{ path: 'a\u0001', bytes: 3, updatedSequence: 9 }]);
  expect((await listContextNotes(t.db, { ...key('ctx'), cursor: paged.cursor ?? '' })).notes).toMatchObject([{ path: 'b' }]);
  const { incarnation } = await getSessionLog(t.db, key('ctx'));
  const forged = encodeCursor(
    'context-notes',
    { path: Buffer.from('\0').toString('base64') },
    contentHash({ ...key('ctx'), incarnation }).hash,
  );
  await expect(listContextNotes(t.db, { ...key('ctx'), cursor: forged })).rejects.toEqual(coded('invalid_cursor'));
  expect(await getContextNote(t.db, { ...key('ctx'), path: 'a\u0001' })).toEqual({ path: 'a\u0001', content: 'xé', updatedSequence: 9 });
  await expect(getContextNote(t.db, { ...key('ctx'), path: 'c' })).rejects.toEqual(coded('note_not_found'));

  const history = (over: object = {}) => all(async (cursor) => listContextHistory(t.db, { ...key('ctx'), limit: 1, cursor, ...over }));
  expect((await history()).map(({ sequence }) => sequence)).toEqual([2, 6, 7]);
  expect(await history({ windowId: 'w1' })).toMatchObject([
    { itemId: 'item-0', windowId: 'w1', role: 'user', content: words[0] },
    { itemId: 'item-3', windowId: 'w1', toolName: 'sh', content: '{"content":"a🦊 fox"}' },
  ]);
  expect(await history({ windowId: 'legacy-ctx' })).toEqual([]);
  expect(await history({ windowId: 'w1', role: 'tool' })).toMatchObject([{ sequence: 3 }]);

  const search = (query: string, over: object = {}) =>
    all(async (cursor) => {
      const { matches: items, ...page } = await searchContextHistory(t.db, { ...key('ctx'), query, limit: 1, cursor, ...over });
      return { items, ...page };
    });
  const places = async (query: string, over?: object) => (await search(query, over)).map(({ sequence }) => sequence);
  expect(await places('quick')).toEqual([7, 0]);
  expect(await places('Quick')).toEqual([2]);
  expect((await search('')).map(({ windowId }) => windowId)).toEqual(['w2', 'w2', 'w1', 'w2', 'w1']);
  expect(await places('fox', { windowId: 'w1' })).toEqual([3, 0]);
  expect(await places('')).toEqual([7, 6, 3, 2, 0]);
  expect(await places('100%_')).toEqual([]);
  expect(await places('quick', { mode: 'words' })).toEqual([7, 2, 0]);
  expect(await places('quick -lazy fox', { mode: 'words', role: 'user' })).toEqual([0]);
  expect(await places('"fox jumps" or dogs', { mode: 'words', windowId: 'w2' })).toEqual([7, 2]);
  expect(await places('', { mode: 'words' })).toEqual([]);
  expect((await search('fox', { role: 'tool' }))[0]?.excerpt).toContain('🦊 fox');
  expect((await search('jumps', { mode: 'words' }))[0]?.excerpt).toBe(words[1]);
  const { cursor } = await searchContextHistory(t.db, { ...key('ctx'), query: 'quick', limit: 1 });
  await expect(searchContextHistory(t.db, { ...key('ctx'), query: 'fox', cursor: cursor ?? '' })).rejects.toEqual(coded('invalid_cursor'));
  await expect(searchContextHistory(t.db, { ...key('ctx'), query: 'a\0' })).rejects.toEqual(coded('invalid_request'));
});

test('what was said before the first window stands in the legacy one, and from the first window’s start on in it, without being written again', async () => {
  const said = event('user/message', { content: 'before' });
  await session('before', [said, said]);
  const windowId = 'legacy-before';
  const { items } = await listContextHistory(t.db, key('before'));
  const begun = await listContextHistory(t.db, { ...key('before'), limit: 1 });
  expect(items).toMatchObject([{ windowId }, { windowId }]);
  expect(await listContextHistory(t.db, { ...key('before'), windowId })).toMatchObject({ items });
  const stored = () => t.db.pool.query(`SELECT xmin, ctid FROM runplane.context_history WHERE session_id = 'before' AND sequence < 2`);
  const { rows } = await stored();
  await inTransaction(t.db, (tx) =>
    appendAsServer(tx, key('before'), { events: [event('context/window-started', { windowId: 'w1' }), said] }),
  );
  expect((await stored()).rows).toEqual(rows);
  expect((await listContextHistory(t.db, key('before'))).items.map((item) => [item.sequence, item.windowId])).toEqual([
    [0, 'w1'],
    [1, 'w1'],
    [3, 'w1'],
  ]);
  expect(await listContextHistory(t.db, { ...key('before'), windowId })).toEqual({ items: [], cursor: null });

  // Pages that were begun go on in their window, the legacy one's in the first.
  const next = await listContextHistory(t.db, { ...key('before'), limit: 1, cursor: begun.cursor ?? '' });
  await inTransaction(t.db, (tx) =>
    appendAsServer(tx, key('before'), { events: [event('context/window-started', { windowId: 'w2' }), said] }),
  );
  const last = await listContextHistory(t.db, { ...key('before'), limit: 1, cursor: next.cursor ?? '' });
  expect([next, last].map((page) => page.items.map((item) => [item.sequence, item.windowId]))).toEqual([[[1, 'w1']], [[3, 'w1']]]);
  expect(last.cursor).toBeNull();

  const [, kind, hash] = JSON.parse(Buffer.from(begun.cursor ?? '', 'base64url').toString()) as [number, string, string];
  const forged = encodeCursor(kind, { sequence: 0, window: 'w\0' }, hash);
  await expect(listContextHistory(t.db, { ...key('before'), limit: 1, cursor: forged })).rejects.toEqual(coded('invalid_cursor'));
});

test('a page of history is bounded by bytes, and goes on where it stopped', async () => {
  const epoch = await session('long', []);
  for (let i = 0; i < 9; i += 1)
    await appendSessionEvents(t.db, {
      ...key('long'),
      epoch,
      events: [event('user/message', { content: `${i}${'x'.repeat(1_000_000)}` })],
    });
  const first = await listContextHistory(t.db, key('long'));
  expect(first.items.map(({ sequence }) => sequence)).toEqual([0, 1, 2, 3, 4]);
  const rest = await listContextHistory(t.db, { ...key('long'), cursor: first.cursor ?? '' });
  expect(rest.items.map(({ sequence }) => sequence)).toEqual([5, 6, 7, 8]);
  expect(rest.cursor).toBeNull();
  expect((await searchContextHistory(t.db, { ...key('long'), query: '3xxx' })).matches).toMatchObject([{ sequence: 3 }]);
});

describe('a projection that a team registers', () => {
  const words: SessionProjection<{ words: string[] }> = {
    key: 'words',
    version: 1,
    touches: (type) => type === 'note/word',
    initial: () => ({ words: [] }),
    apply: ({ words: before }, { data: { word } }) => {
      if (word === 'fail') throw new Error('no such word: token=abcdefghijklmnop');
      return { words: [...before, word as string] };
    },
  };
  const open = (over: Partial<SessionProjection> = {}) => openDb({ url: t.url, poolMax: 2, projections: [{ ...words, ...over }] });
  const say = (db: Db, sessionId: string, epoch: number, ...said: string[]) =>
    appendSessionEvents(db, { ...key(sessionId), epoch, events: said.map((word) => event('note/word', { word })) });
  const valueOf = async (sessionId: string) =>
    (await listSessionProjections(t.db, key(sessionId))).projections.find(({ key: of }) => of === 'words');

  test('catches up with what others have appended, and goes stale instead of refusing an event', async () => {
    const db = await open();
    const epoch = await session('team', [event('turn/start', {}, 't')]);
    await say(t.db, 'team', epoch, 'a', 'b'); // by a process that does not know the projection
    await say(db, 'team', epoch, 'c');
    expect(await valueOf('team')).toMatchObject({
      version: 1,
      sequence: 3,
      appliedSequence: 3,
      staleReason: null,
      value: { words: ['a', 'b', 'c'] },
    });
    expect(await listProjections(db, { tenantId, key: 'words' })).toMatchObject({ projections: [{ sessionId: 'team' }], cursor: null });

    await say(db, 'team', epoch, 'd', 'fail');
    const stale = await valueOf('team');
    expect(stale).toMatchObject({ appliedSequence: 3, value: { words: ['a', 'b', 'c'] } });
    expect(stale?.staleReason).toMatch(/^event 5: no such word/);
    expect(stale?.staleReason).not.toContain('abcdefghijklmnop');
    await say(db, 'team', epoch, 'e');
    expect(await valueOf('team')).toEqual(stale);

    // The rules are mended and have a new version: the view waits for a rebuild, which makes it whole.
    const mended = await open({
      version: 2,
      apply: ({ words: before }, { data }) => ({ words: [...(before as string[]), data['word'] as string] }),
    });
    await rebuildSession(mended, key('team'), { owner: 'test' });
    expect(await valueOf('team')).toMatchObject({ version: 2, staleReason: null, value: { words: ['a', 'b', 'c', 'd', 'fail', 'e'] } });
    await say(db, 'team', epoch, 'f'); // older rules leave newer views alone
    expect(await valueOf('team')).toMatchObject({ version: 2, appliedSequence: 6 });
    await say(mended, 'team', epoch, 'g');
    expect(await valueOf('team')).toMatchObject({ version: 2, value: { words: ['a', 'b', 'c', 'd', 'fail', 'e', 'f', 'g'] } });
    await mended.close();
    await db.close();
  });

  test('that is too far behind the log is stale until it is rebuilt', async () => {
    const db = await open({ apply: ({ words: before }) => ({ words: [String((before as string[]).length + 1)] }) });
    const epoch = await session('behind', []);
    for (const n of [500, 500, 1]) await say(t.db, 'behind', epoch, ...Array.from({ length: n }, (_, i) => `${i}`));
    await say(db, 'behind', epoch, 'last');
    expect((await valueOf('behind'))?.staleReason).toContain('behind the log');
    await rebuildSession(db, key('behind'), { owner: 'test' });
    expect(await valueOf('behind')).toMatchObject({ staleReason: null, appliedSequence: 1001, sequence: 1001 });
    await db.close();
  });

  test('that few events touch is not behind a log of others, however long since', async () => {
    const db = await open();
    const epoch = await session('rare', []);
    await say(db, 'rare', epoch, 'a');
    for (let n = 0; n < 3; n += 1)
      await appendSessionEvents(db, { ...key('rare'), epoch, events: Array.from({ length: 500 }, () => event('other/thing')) });
    await say(db, 'rare', epoch, 'b');
    expect(await valueOf('rare')).toMatchObject({ staleReason: null, sequence: 1501, appliedSequence: 1501, value: { words: ['a', 'b'] } });
    await db.close();
  });

  test('of an older version is stale until it is rebuilt', async () => {
    const [v1, v2] = [await open(), await open({ version: 2 })];
    const epoch = await session('upgrade', []);
    await say(v1, 'upgrade', epoch, 'a');
    await say(v2, 'upgrade', epoch, 'b');
    expect(await valueOf('upgrade')).toMatchObject({
      version: 1,
      appliedSequence: 0,
      staleReason: 'was made by version 1, the rules are of version 2',
    });
    await v1.close();
    await v2.close();
  });

  test.each<[string, Partial<SessionProjection>]>([
    [
      'throws from touches',
      {
        touches: () => {
          throw new Error('oops');
        },
      },
    ],
    ['gives no object', { apply: () => 7 as never }],
    ['gives what is no JSON', { apply: () => ({ at: new Date() }) as never }],
    [
      'cannot begin',
      {
        initial: () => {
          throw new Error('oops');
        },
      },
    ],
  ])('that %s does not stop the log', async (name, over) => {
    const db = await open(over);
    const id = `broken ${name}`;
    const epoch = await session(id, []);
    await say(db, id, epoch, 'a');
    const [row] = await t.db.sql.query(sql`SELECT stale_reason AS "why" FROM runplane.session_views WHERE session_id = ${id}::text`);
    expect(row?.['why']).toBeTruthy();
    expect(await readSnapshot(t.db, key(id))).toMatchObject({ snapshot: { sequence: 0 } });
    await db.close();
  });

  test('needs a key of its own', async () => {
    for (const projections of [[words, words], [{ ...words, key: 'channelState' }], [{ ...words, key: '' }], [{ ...words, version: 0 }]]) {
      await expect(openDb({ url: t.url, projections: projections })).rejects.toThrow(/projection/);
    }
  });
});

test('a page of large rows ends at four megabytes, and goes on where it stopped', async () => {
  const ids = ['1', '2', '3', '4', '5', '6'];
  const events = ids.flatMap((id) => [
    event('channel/bound', { ...here, conversation_id: id }),
    event('channel/delivery/queued', { delivery_id: id }),
    event('approval/requested', { approval_id: id, timeout_seconds: 3_600 }),
    event('user-input/requested', { request_id: id, expires_at_ms: 4_000_000_000_000 }),
  ]);
  await session('large', []);
  await inTransaction(t.db, (tx) => appendAsServer(tx, key('large'), { events }));
  for (const id of ids) await session(`large-${id}`, [event('subagent/descriptor')]);
  // As large as an event can make them, without the way through the log.
  for (const [table, column, value] of [
    ['channel_bindings', 'data', `json_build_object('text', repeat('x', 900000))`],
    ['channel_deliveries', 'data', `json_build_object('text', repeat('x', 900000))`],
    ['approvals', 'arguments_summary', `json_build_object('text', repeat('x', 900000))`],
    ['input_requests', 'prompt', `repeat('x', 900000)`],
    ['session_views', 'value', `json_build_object('text', repeat('x', 900000))`],
  ] as const)
    await t.db.pool.query(`UPDATE runplane.${table} SET ${column} = ${value} WHERE session_id LIKE 'large%'`);
  const pages = async <Item>(list: (cursor: string | undefined) => Promise<{ items: readonly Item[]; cursor: string | null }>) => {
    const sizes: number[] = [];
    await all(async (cursor) => {
      const page = await list(cursor);
      sizes.push(page.items.length);
      return page;
    });
    return sizes;
  };
  const of = key('large');
  const bound = (cursor: string | undefined) => listChannelBindings(t.db, { ...of, cursor }).then(({ bindings, ...page }) => ({ items: bindings, ...page })); // prettier-ignore
  const sent = (state?: 'queued') => (cursor: string | undefined) => listChannelDeliveries(t.db, { ...of, state, cursor }).then(({ deliveries, ...page }) => ({ items: deliveries, ...page })); // prettier-ignore
  const asked = (cursor: string | undefined) => listPendingApprovals(t.db, { ...of, cursor }).then(({ approvals, ...page }) => ({ items: approvals, ...page })); // prettier-ignore
  const questions = (cursor: string | undefined) => listPendingInputs(t.db, { ...of, cursor }).then(({ requests, ...page }) => ({ items: requests, ...page })); // prettier-ignore
  const values = (cursor: string | undefined) => listProjections(t.db, { tenantId, key: 'subagentIdentity', cursor }).then(({ projections, ...page }) => ({ items: projections.filter(({ sessionId }) => sessionId.startsWith('large')), ...page })); // prettier-ignore
  expect(await pages(bound)).toEqual([5, 1]);
  expect(await pages(sent())).toEqual([5, 1]);
  expect(await pages(sent('queued'))).toEqual([5, 1]);
  expect(await pages(asked)).toEqual([5, 1]);
  expect(await pages(questions)).toEqual([5, 1]);
  const found = await pages(values);
  expect(found.reduce((sum, n) => sum + n)).toBe(6);
  expect(found.length).toBeGreaterThan(1);

  const [document] = (await listSessionProjections(t.db, of)).projections.filter(({ key: name }) => name === 'channelState');
  expect(Object.keys((document?.value as { bindings: object }).bindings)).toEqual(['["tg","acct","5"]', '["tg","acct","6"]']);
});
