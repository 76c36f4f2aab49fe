import type { JsonObject, NewSessionEvent, SessionProjection } from '@runplane/contracts';
import { ensureTenant, inTransaction, openDb, sql, type Db, type Tx } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { appendAsServer } from '../append-as-server';
import { listSessionsWithDueRequests } from '../requests.sql';
import { PROJECTIONS, VIEWS_VERSION } from '../projections';
import { lockHead } from '../session-head.sql';
import { createSessions } from '../sessions';
import { EMPTY_HEAD, foldPage, listLog } from './fold-log';
import { rebuildSession, type RebuildOptions } from './rebuild-session';
import { rebuildStaleOnce } from './rebuild-stale-once';
import { getSessionRebuild, requestSessionRebuild } from './request-session-rebuild';
import { clearShadow, shadowOf, switchViews, VIEW_TABLES } from './shadow-views.sql';

const t = useDatabase();
const tenantId = 'acme';
const owner = 'this process';
beforeAll(() => ensureTenant(t.db.sql, tenantId));

const key = (sessionId: string) => ({ tenantId, sessionId });
const event = (type: string, data: JsonObject = {}, turnId?: string): NewSessionEvent => ({ type, data, ...(turnId && { turnId }) });
const append = (id: string, ...events: NewSessionEvent[]) => inTransaction(t.db, (tx) => appendAsServer(tx, key(id), { events }));
const rebuild = (id: string, options: Partial<RebuildOptions> = {}, db: Db = t.db) => rebuildSession(db, key(id), { owner, ...options });
const query = async <T = Record<string, unknown>>(text: string, ...values: unknown[]): Promise<T[]> =>
  (await t.db.pool.query(text, values)).rows as T[];

const HEAD = 'snapshot, driver_state, needs_recovery, window_id, first_window_id, open_submissions, open_turn_submissions, views_version';

/** Every view of a session, as it stands in the database. */
async function views(sessionId: string, of = tenantId): Promise<Record<string, unknown[]>> {
  const all: Record<string, unknown[]> = {};
  for (const { table, key: rest } of VIEW_TABLES) {
    const order = rest.map((column) => `"${column}"`).join(', ');
    all[table] = await query(`SELECT * FROM runplane.${table} WHERE tenant_id = $1 AND session_id = $2 ORDER BY ${order}`, of, sessionId);
  }
  all['session_heads'] = await query(`SELECT ${HEAD} FROM runplane.session_heads WHERE tenant_id = $1 AND session_id = $2`, of, sessionId);
  return all;
}

/** How often this transaction has searched the indexes of the history. */
async function scans(tx: Tx): Promise<number> {
  const [row] = await tx.query(sql`SELECT idx_scan::int AS "n" FROM pg_stat_xact_user_tables WHERE relname = 'context_history'`);
  return Number(row?.['n']);
}

const shadowRows = (): Promise<unknown[]> =>
  query(
    VIEW_TABLES.map(({ table }) => `SELECT tenant_id, session_id, '${table}' FROM runplane.${table} WHERE ascii(tenant_id) < 32`).join(
      ' UNION ALL ',
    ),
  );

const submission = (id: string, kind = 'turn') =>
  event('submission/accepted', { operation_id: id, submission_id: `sub-${id}`, kind, payload: { text: id }, source: { channel: 'x' } });

/** A log that touches every view. */
const LIFE: readonly NewSessionEvent[] = [
  event('user/message', { content: 'before any window' }),
  event('context/window-started', { windowId: 'w1' }),
  submission('op-1'),
  submission('op-2', 'user-input'),
  event('turn/start', {}, 't1'),
  event('context/note-appended', { path: 'plan.md', text: 'one,' }),
  event('tool/call', { name: 'shell', arguments: '{"cmd":"ls"}' }),
  event('approval/requested', { approval_id: 'ap-1', tool_name: 'shell', arguments_summary: { cmd: 'ls' }, timeout_seconds: 3_600 }),
  event('approval/resolved', { approval_id: 'ap-1', resolution: 'approved', actor: { type: 'user', id: 'u' } }),
  event('context/note-appended', { path: 'plan.md', text: 'two,' }),
  event('submission/completed', { operation_id: 'op-1' }),
  event('compaction/checkpoint', { windowId: 'w2', carriedEventSequences: [6] }),
  event('user-input/requested', { request_id: 'in-1', prompt: 'which?', expires_at_ms: 4_000_000_000_000 }),
  event('approval/requested', { approval_id: 'ap-2', tool_name: 'rm', timeout_seconds: 3_600 }),
  event('context/note-appended', { path: 'plan.md', text: 'three' }),
  event('channel/bound', { channel_id: 'tg', account_id: 'a', conversation_id: 'c' }),
  event('channel/inbound', { channel_id: 'tg', account_id: 'a', conversation_id: 'c', message_id: 'm1', text: 'hi' }),
  event('input/enqueued', { input_id: 'i1', message_source: { channel_id: 'tg', account_id: 'a', conversation_id: 'c' } }, 't1'),
  event('channel/delivery/queued', { delivery_id: 'd1', text: 'answer' }),
  event('channel/delivery/failed', { delivery_id: 'd1', error: 'gone' }),
  event('subagent/descriptor', { name: 'helper' }),
  event('subagent/settled', { status: 'idle' }),
];

async function live(id: string): Promise<Record<string, unknown[]>> {
  await createSessions(t.db).createSession({ tenantId, header: { id } });
  // In appends of several sizes, as they come in life.
  for (const [from, to] of [[0, 3], [3, 4], [4, 10], [10, LIFE.length]] as const) await append(id, ...LIFE.slice(from, to)); // prettier-ignore
  return views(id);
}

/** What no guard would let happen: rows that are missing, made up, changed. */
async function damage(id: string): Promise<void> {
  const at = `tenant_id = '${tenantId}' AND session_id = '${id}'`;
  for (const text of [
    `DELETE FROM runplane.context_history WHERE ${at} AND sequence > 3`,
    `UPDATE runplane.context_notes SET content = 'lost' WHERE ${at}`,
    `DELETE FROM runplane.context_windows WHERE ${at}`,
    `UPDATE runplane.approvals SET state = 'approved', resolved_at = now(), resolved_sequence = 3 WHERE ${at} AND approval_id = 'ap-2'`,
    `DELETE FROM runplane.input_requests WHERE ${at}`,
    `DELETE FROM runplane.channel_bindings WHERE ${at}`,
    `UPDATE runplane.channel_deliveries SET state = 'succeeded' WHERE ${at}`,
    `INSERT INTO runplane.channel_routes (tenant_id, session_id, turn_id, sequence, source) VALUES ('${tenantId}', '${id}', 'made up', 1, '{}')`,
    `DELETE FROM runplane.submissions WHERE ${at} AND operation_id = 'op-2'`,
    `UPDATE runplane.submissions SET payload = '{}', state = 'pending', ended_at = NULL, ended_sequence = NULL WHERE ${at} AND operation_id = 'op-1'`,
    `DELETE FROM runplane.session_views WHERE ${at}`,
    `UPDATE runplane.session_heads SET snapshot = '{}', driver_state = 'idle', needs_recovery = false, window_id = 'x', first_window_id = NULL, open_submissions = 9, views_version = 0 WHERE ${at}`,
  ])
    await query(text);
}

describe('a rebuild of a session', () => {
  test('makes every view as the log says, and touches no row that is so', async () => {
    const before = await live('whole');
    expect(Object.entries(before).filter(([, rows]) => rows.length === 0)).toEqual([]);

    const rows = await query('SELECT xmin, ctid FROM runplane.context_history UNION ALL SELECT xmin, ctid FROM runplane.approvals');
    expect(await rebuild('whole', { pageEvents: 4 })).toMatchObject({ events: LIFE.length, changedRows: 0, viewsVersion: VIEWS_VERSION });
    expect(await query('SELECT xmin, ctid FROM runplane.context_history UNION ALL SELECT xmin, ctid FROM runplane.approvals')).toEqual(
      rows,
    );

    await damage('whole');
    expect((await getSessionRebuild(t.db, key('whole'))).staleReason).toBe('a built-in view has failed');
    const { changedRows } = await rebuild('whole');
    expect(changedRows).toBeGreaterThan(15);
    expect(await views('whole')).toEqual(before);
    expect(await getSessionRebuild(t.db, key('whole'))).toMatchObject({ state: 'completed', stale: false, staleReason: null, changedRows });
    expect(await shadowRows()).toEqual([]);
  });

  test('puts a long log in place without going through all of it for each of its rows, on a store without statistics too', async () => {
    const said = Array.from({ length: 300 }, (_, i) => event('user/message', { content: `${i}` }));
    await createSessions(t.db).createSession({ tenantId, header: { id: 'long' } });
    await append('long', ...said);
    const log = await listLog(t.db.sql, key('long'), { after: -1, limit: 300, bytes: 2 ** 20 });
    await inTransaction(t.db, async (tx) => {
      await lockHead(tx, key('long'));
      await foldPage(tx, { ...key('long'), header: {} }, { events: log, head: EMPTY_HEAD, projections: PROJECTIONS });
      await tx.query(sql`DELETE FROM runplane.context_history WHERE session_id = 'long' AND ascii(tenant_id) >= 32`);
      const before = await scans(tx);
      expect(await switchViews(tx, key('long'), { viewKeys: [], lastSequence: 299 })).toBe(300);
      expect((await scans(tx)) - before).toBeLessThan(20);
      await clearShadow(tx, key('long'), 300);
    });
  });

  test('leaves claims, their counts and submissions without an event alone', async () => {
    await live('claimed');
    const heads = () => query(`SELECT *, xmin FROM runplane.submission_heads WHERE session_id = 'claimed'`);
    await query(
      `UPDATE runplane.submission_heads SET state = 'claimed', owner = 'w', epoch = 7, attempts = 3, expires_at = now() + interval '1 minute', ready_at = now() + interval '1 minute'
        WHERE session_id = 'claimed'`,
    );
    await query(`UPDATE runplane.submissions SET attempts = 5, claim_epoch = 6 WHERE session_id = 'claimed' AND operation_id = 'op-1'`);
    await query(
      `INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, payload, source, content_hash, hash_version, accepted_sequence, place, from_event)
        VALUES ('acme', 'claimed', 'old', 'sub-old', 'turn', '{}', '{}', 'h', 1, -1, -1, false)`,
    );
    await query(`UPDATE runplane.session_heads SET open_submissions = 2, open_turn_submissions = 2 WHERE session_id = 'claimed'`);
    const [before, claims] = [await views('claimed'), await heads()];

    expect(await rebuild('claimed')).toMatchObject({ changedRows: 0 });
    expect([await views('claimed'), await heads()]).toEqual([before, claims]);

    await query(`DELETE FROM runplane.submission_heads WHERE session_id = 'claimed'`);
    await query(`DELETE FROM runplane.submissions WHERE session_id = 'claimed' AND operation_id = 'old'`);
    await rebuild('claimed');
    expect(await heads()).toEqual([expect.objectContaining({ operation_id: 'op-2', state: 'waiting' })]);
  });

  test('killed at any statement, it is taken up from its last page, and no note is appended twice', async () => {
    const before = await live('killed');
    const plan = () => query(`SELECT content FROM runplane.context_notes WHERE tenant_id = 'acme' AND session_id = 'killed'`);
    const leftFor = new Set<number>();
    for (let statements = 1, done = false; !done; statements += 3) {
      await query(`UPDATE runplane.context_notes SET content = 'lost' WHERE tenant_id = 'acme' AND session_id = 'killed'`);
      const died = await rebuild('killed', { pageEvents: 8 }, dyingAfter(statements)).then(
        () => false,
        () => true,
      );
      done = !died;
      expect([[{ content: 'lost' }], [{ content: 'one,two,three' }]]).toContainEqual(await plan()); // the old row or the new one
      await query(`UPDATE runplane.session_rebuilds SET expires_at = now(), ready_at = now() WHERE state = 'running'`);
      const pass = await rebuildStaleOnce(t.db, { owner: 'another process', onRebuilt: ({ events }) => leftFor.add(events) });
      if (died) expect(pass).toMatchObject({ changed: 1, failed: 0 });
      expect(await plan()).toEqual([{ content: 'one,two,three' }]);
    }
    expect(await views('killed')).toEqual(before);
    expect(await shadowRows()).toEqual([]);
    expect(leftFor).toEqual(new Set([22, 14, 6, 0])); // pages that the dead had folded were not folded again
  });

  test('lets appends go on, shows readers the old rows until the switch, and misses none of the new events', async () => {
    await live('busy');
    await damage('busy');
    const meanwhile: Promise<unknown>[] = [];
    const reads: Promise<unknown>[] = [];
    const seen: unknown[] = [];
    const onProgress = ({ throughSequence }: { throughSequence: number }): void => {
      if (throughSequence > 30) return;
      meanwhile.push(append('busy', event('context/note-appended', { path: 'busy.md', text: `${throughSequence},` }), event('x/y')));
      reads.push(
        query(`SELECT content FROM runplane.context_notes WHERE tenant_id = 'acme' AND session_id = 'busy' AND path = 'plan.md'`).then(
          (rows) => seen.push(...rows),
        ),
      );
    };
    // What has been asked and written before a page is answered before the next but one begins, on whatever machine.
    const transaction = async (): Promise<void> => void (await Promise.all([...reads, ...meanwhile.slice(0, -1)]));
    const { events } = await rebuild('busy', { pageEvents: 5, onProgress }, dbWith({ transaction }));
    await Promise.all([...reads, ...meanwhile]);

    expect(seen.length).toBeGreaterThan(3);
    expect(seen.slice(0, -1)).toEqual(seen.slice(0, -1).map(() => ({ content: 'lost' })));
    expect(events).toBeGreaterThan(LIFE.length);
    const after = await views('busy');
    expect(await rebuild('busy')).toMatchObject({ changedRows: 0 });
    expect(await views('busy')).toEqual(after);
  });

  test('waits with its switch for whoever holds the head, and folds what that one has appended', async () => {
    await live('held');
    const holder = await openClient(t.url);
    await holder.query(`BEGIN; SELECT FROM runplane.session_heads WHERE session_id = 'held' FOR NO KEY UPDATE`);
    const rebuilding = rebuild('held');
    await waitUntilBlocked(t.db, 1);
    await holder.query('COMMIT');
    await holder.end();
    await rebuilding;

    let last: Promise<unknown> | undefined;
    await rebuild('held', { onProgress: ({ throughSequence }) => { if (throughSequence === LIFE.length - 1) last ??= append('held', event('context/note-written', { path: 'n', text: 'new' })); } }); // prettier-ignore
    await last;
    expect(await query(`SELECT content FROM runplane.context_notes WHERE session_id = 'held' AND path = 'n'`)).toEqual([
      { content: 'new' },
    ]);
    expect(await rebuild('held')).toMatchObject({ changedRows: 0 });
  });

  test('is done by one at a time; who was taken over writes nothing more', async () => {
    await live('two');
    let second: Promise<unknown> | undefined;
    await rebuild('two', {
      pageEvents: 4,
      onProgress: () => {
        second ??= rebuild('two', { owner: 'other' }).catch((error: unknown) => error);
      },
    });
    expect(await second).toMatchObject({ code: 'rebuild_running', retryable: true });

    const before = await views('two');
    const late = rebuild('two', { pageEvents: 4 }, dbWith({ transaction: (n) => (n === 6 ? takeOver('two') : Promise.resolve()) }));
    await expect(late).rejects.toMatchObject({ code: 'rebuild_running' });
    expect(await views('two')).toEqual(before);
    expect(await shadowRows()).toEqual([]);
  });

  test('that was given back behind its switch begins anew when it is asked for again', async () => {
    const before = await live('switched');
    await rebuild('switched');
    await query(
      `UPDATE runplane.session_rebuilds SET state = 'waiting', owner = NULL, expires_at = NULL, finished_at = NULL WHERE session_id = 'switched'`,
    );
    await damage('switched');
    expect(await rebuild('switched')).toMatchObject({ events: LIFE.length });
    expect(await views('switched')).toEqual(before);
  });

  test('folds what no append would let in, and what text cannot hold', async () => {
    await live('odd');
    const odd = [
      ['user/message', '{"content":"a\\u0000b \\ud800 c"}'],
      [
        'submission/accepted',
        '{"operation_id":"op-3","submission_id":"s3","kind":"turn","payload":{"nul":"\\u0000","nan":"NaN","lone":"\\udc00"}}',
      ],
      ['submission/accepted', '{"operation_id":"op-3","submission_id":"s4","kind":"turn"}'],
      ['submission/failed', '{"operation_id":"op-3","error":"a\\u0000b"}'],
      ['submission/completed', '{"operation_id":"nobody"}'],
      ['tool/call', '{"name":"\\u0000","arguments":{"deep":' + '['.repeat(500) + ']'.repeat(500) + '}}'],
      ['context/note-appended', '{"path":"odd","text":"\\u0000"}'],
      ['context/note-written', '{"path":7,"text":null}'],
      [
        'approval/requested',
        '{"approval_id":"odd","tool_name":"\\u0000","reason":{"a":1},"timeout_seconds":"soon","arguments_summary":"\\ud800"}',
      ],
      ['approval/resolved', '{"approval_id":"odd","resolution":"pending"}'],
      ['user-input/requested', '{"request_id":"odd","expires_at_ms":1e300,"prompt":["\\u0000"]}'],
      ['user-input/resolved', '{"request_id":"odd","outcome":null,"value":"\\u0000"}'],
      ['agent/inbox/spliced', '{"index":"x","inserted":7}'],
      ['context/window-started', '{"windowId":null,"startedSequence":-5}'],
      ['compaction/checkpoint', '{"windowId":"w1","carriedEventSequences":[true,"x",2,99999999999999999999]}'],
      ['channel/inbound', '{"channel_id":"\\u0000","account_id":[1],"conversation_id":{},"message_id":"\\ud800"}'],
      ['channel/delivery/failed', '{"delivery_id":"d9","error":{"code":"\\u0000"}}'],
      ['subagent/descriptor', '{"name":"\\u0000"}'],
      ['turn/end', '{}'],
      ['unknown/type', '{"__proto__":{"x":1},"constructor":null}'],
    ] as const;
    await query(
      `INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data)
        SELECT 'acme', 'odd', $1::int + n, gen_random_uuid(), type, now(), data::json FROM unnest($2::text[], $3::text[]) WITH ORDINALITY o (type, data, n)`,
      LIFE.length - 1,
      odd.map(([type]) => type),
      odd.map(([, data]) => data),
    );
    await query(
      `UPDATE runplane.session_heads SET last_sequence = $1, imported_through = $1 WHERE session_id = 'odd'`,
      LIFE.length - 1 + odd.length,
    );

    await rebuild('odd', { pageEvents: 3 });
    const after = await views('odd');
    expect(JSON.stringify(after['context_history'])).toContain('a\ufffdb \ufffd c');
    expect(await rebuild('odd')).toMatchObject({ changedRows: 0 }); // the same in one page
    expect(await views('odd')).toEqual(after);
    await append('odd', event('user/message', { content: 'goes on' }), event('context/note-appended', { path: 'odd', text: '!' }));
    expect(await rebuild('odd')).toMatchObject({ changedRows: 0 });
  });

  test('has rows that no sweeper takes for live ones', async () => {
    await createSessions(t.db).createSession({ tenantId, header: { id: 'due' } });
    await append('due', event('approval/requested', { approval_id: 'over', timeout_seconds: 0 }), event('x/y'));
    await append('due', event('approval/resolved', { approval_id: 'over', resolution: 'expired', actor: { type: 'system', id: 's' } }));
    const stop = new AbortController();
    const onProgress = () => {
      stop.abort();
    };
    await expect(rebuild('due', { pageEvents: 2, signal: stop.signal, onProgress })).rejects.toThrow(/abort/);
    expect(await query(`SELECT state FROM runplane.approvals WHERE approval_id = 'over' AND ascii(tenant_id) < 32`)).toEqual([
      { state: 'pending' },
    ]);

    expect(await listSessionsWithDueRequests(t.db.sql, 10)).toEqual([]);
    expect(await rebuild('due')).toMatchObject({ events: 1, changedRows: 0 });
  });

  test('reads a large log in pages of bounded bytes', async () => {
    await createSessions(t.db).createSession({ tenantId, header: { id: 'large' } });
    const megabyte = 'x'.repeat(1_000_000);
    for (let n = 0; n < 4; n += 1) await append('large', ...Array.from({ length: 3 }, () => event('big/one', { text: megabyte })));
    const pages: number[] = [];
    await rebuild('large', { onProgress: ({ throughSequence }) => pages.push(throughSequence) });
    expect(pages).toEqual([4, 9, 11]);
  });

  test('of a session that is not there, or deleted, is refused, and leaves nothing', async () => {
    await expect(rebuild('nobody')).rejects.toMatchObject({ code: 'session_not_found' });
    await expect(requestSessionRebuild(t.db, { tenantId: 'other', sessionId: 'whole' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
    await live('gone');
    const marked = () => query(`UPDATE runplane.session_heads SET deleted_at = now() WHERE session_id = 'gone'`).then(() => undefined);
    const gone = rebuild('gone', { pageEvents: 4 }, dbWith({ transaction: (n) => (n === 6 ? marked() : Promise.resolve()) }));
    await expect(gone).rejects.toMatchObject({ code: 'session_not_found' });
    expect(await shadowRows()).toEqual([]);
    await query(`UPDATE runplane.session_heads SET deleted_at = NULL WHERE session_id = 'gone'`);
  });
});

describe('the background', () => {
  test('finds views of older rules and failed ones, leaves newer ones alone, and gives up what fails ten times', async () => {
    await live('older');
    await live('newer');
    await live('broken');
    await query(`UPDATE runplane.session_heads SET views_version = 1 WHERE session_id IN ('older', 'broken')`);
    await query(`UPDATE runplane.session_heads SET views_version = 9999 WHERE session_id = 'newer'`);
    await query(`UPDATE runplane.session_heads SET last_sequence = last_sequence + 1 WHERE session_id = 'broken'`); // a log without its end

    await append('older', event('x/y'));
    expect(await getSessionRebuild(t.db, key('older'))).toMatchObject({ stale: true, viewsVersion: 1 });
    const failed: unknown[] = [];
    const pass = () => rebuildStaleOnce(t.db, { owner, onFailed: ({ sessionId }, error) => failed.push([sessionId, String(error)]) });
    const [before] = await query<{ now: string }>('SELECT runplane.app_now()::text AS now');
    expect(await pass()).toMatchObject({ changed: 1, failed: 1, requested: 2 });
    const longer = `UPDATE runplane.session_rebuilds SET ready_at = ready_at + interval '1 hour' WHERE session_id = 'broken' AND ready_at >= $1::timestamptz + interval '1 second' RETURNING 1`;
    expect(await query(longer, before?.now)).toHaveLength(1); // it backs off, and from here for longer than this test takes
    expect(failed).toEqual([['broken', expect.stringContaining('the log ends at 21, its head says 22')]]);
    expect(await getSessionRebuild(t.db, key('older'))).toMatchObject({ stale: false, viewsVersion: VIEWS_VERSION });
    expect(await getSessionRebuild(t.db, key('newer'))).toMatchObject({ stale: true, staleReason: 'built by version 9999 of the rules' });
    await append('newer', event('x/y')); // by older rules than its views
    expect(await getSessionRebuild(t.db, key('newer'))).toMatchObject({ stale: false, viewsVersion: VIEWS_VERSION });
    expect(await pass()).toMatchObject({ changed: 0, failed: 0, requested: 0 }); // it waits for its back-off

    for (let attempt = 2; attempt <= 10; attempt += 1) {
      await query(`UPDATE runplane.session_rebuilds SET ready_at = now() WHERE session_id = 'broken'`);
      expect(await pass()).toMatchObject({ changed: 0, failed: 1 });
    }
    await query(`UPDATE runplane.session_rebuilds SET ready_at = now() WHERE session_id = 'broken'`);
    expect(await pass()).toMatchObject({ changed: 0, failed: 0, requested: 0 });
    expect(await getSessionRebuild(t.db, key('broken'))).toMatchObject({
      state: 'waiting',
      attempts: 10,
      lastError: expect.stringContaining('the log ends') as string,
    });
    expect(await shadowRows()).toEqual([]);

    await query(`UPDATE runplane.session_heads SET last_sequence = last_sequence - 1 WHERE session_id = 'broken'`);
    expect(await requestSessionRebuild(t.db, key('broken'))).toMatchObject({ state: 'waiting', attempts: 0 });
    expect(await pass()).toMatchObject({ changed: 1 });
    await query(`UPDATE runplane.session_heads SET views_version = $1`, VIEWS_VERSION);
  });
});

describe('the view of a registered projection', () => {
  const counter = (version: number): SessionProjection => ({
    key: 'counter',
    version,
    touches: (type) => type.startsWith('turn/'),
    initial: () => ({ version, turns: 0 }),
    apply: (value) => ({ ...value, turns: Number(value['turns']) + 1 }),
  });
  const failing: SessionProjection = { ...counter(1), key: 'failing', apply: () => { throw new Error('cannot'); } }; // prettier-ignore
  const counted = () =>
    query(
      `SELECT session_id, key, version, value, stale_reason FROM runplane.session_views WHERE tenant_id = 'acme' AND key <> 'subagentIdentity' ORDER BY 1, 2`,
    );

  test('is built where it is missing or of another version, once where nothing helps, and stays where a program does not know it', async () => {
    await live('team');
    await query(`UPDATE runplane.session_heads SET deleted_at = now() WHERE session_id <> 'team'`);
    const first = await openDb({ url: t.url, projections: [counter(1), failing] });
    const second = await openDb({ url: t.url, projections: [counter(2)] });
    try {
      expect(await rebuildStaleOnce(first, { owner })).toMatchObject({ requested: 1, changed: 1 });
      expect(await counted()).toEqual([
        { session_id: 'team', key: 'counter', version: 1, value: { version: 1, turns: 1 }, stale_reason: null },
        { session_id: 'team', key: 'failing', version: 1, value: {}, stale_reason: expect.stringContaining('cannot') as string },
      ]);
      expect(await rebuildStaleOnce(first, { owner })).toMatchObject({ requested: 0, changed: 0 });
      expect((await getSessionRebuild(first, key('team'))).staleReason).toMatch(/^view failing: event 4: .*cannot/);

      expect(await rebuild('team')).toMatchObject({ changedRows: 0 }); // a program without projections
      expect((await getSessionRebuild(second, key('team'))).staleReason).toMatch(/^view (counter|failing): /);
      expect(await rebuildStaleOnce(second, { owner })).toMatchObject({ requested: 1, changed: 1 });
      expect(await counted()).toMatchObject([{ key: 'counter', version: 2, value: { version: 2, turns: 1 } }, { key: 'failing' }]);
      expect(await rebuildStaleOnce(second, { owner })).toMatchObject({ requested: 0, changed: 0 });

      // An older program is asked for a rebuild: what a newer one has made stays.
      expect(await rebuildSession(first, key('team'), { owner })).toMatchObject({ changedRows: 0 });
      expect(await counted()).toMatchObject([{ key: 'counter', version: 2, value: { version: 2, turns: 1 } }, { key: 'failing' }]);
    } finally {
      await first.close();
      await second.close();
      await query(`UPDATE runplane.session_heads SET deleted_at = NULL`);
    }
  });
});

test('every column of a view is compared and switched, and every table of a session’s views is one of them', async () => {
  const columns = await query<{ table: string; columns: string[] }>(
    `SELECT table_name AS table, array_agg(column_name::text ORDER BY column_name) AS columns FROM information_schema.columns
      WHERE table_schema = 'runplane' AND table_name = ANY ($1) GROUP BY table_name`,
    VIEW_TABLES.map(({ table }) => table),
  );
  const named = VIEW_TABLES.map((view) => ({
    table: view.table,
    columns: ['tenant_id', 'session_id', ...view.key, ...view.columns, ...Object.keys(view.kept ?? {})].sort(),
  }));
  const byTable = (rows: { table: string; columns: string[] }[]) =>
    Object.fromEntries(rows.map(({ table, columns: c }) => [table, [...c].sort()]));
  expect(byTable(named)).toEqual(byTable(columns));

  const tables = await query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.columns WHERE table_schema = 'runplane' AND column_name = 'session_id'
        AND (table_name ~ '^(channel|context)_' OR table_name IN ('approvals', 'input_requests', 'submissions', 'session_views'))`,
  );
  expect(new Set(tables.map(({ name }) => name))).toEqual(new Set(VIEW_TABLES.map(({ table }) => table)));
  expect(shadowOf('t')).toBe('\u0001t');
});

/** Somebody else takes a running rebuild over, after its lease, and ends it. */
async function takeOver(id: string): Promise<void> {
  await query(`UPDATE runplane.session_rebuilds SET expires_at = now(), ready_at = now() WHERE session_id = $1`, id);
  expect(await rebuildStaleOnce(t.db, { owner: 'other' })).toMatchObject({ changed: 1, failed: 0 });
}

/** The store as a process has it to which something happens before one of its transactions, or before a statement of them. */
function dbWith({ transaction, statement }: { transaction?: (n: number) => Promise<void>; statement?: (n: number) => void }): Db {
  const count = { transactions: 0, statements: 0 };
  const beforeStatement = (): void => statement?.((count.statements += 1));
  const prisma = {
    $transaction: async (work: (client: unknown) => Promise<unknown>, limits: object) => {
      await transaction?.((count.transactions += 1));
      return t.db.prisma.$transaction(
        (client) =>
          work({
            $queryRawUnsafe: async (text: string, ...values: unknown[]) => {
              beforeStatement();
              return client.$queryRawUnsafe(text, ...values);
            },
          }),
        limits,
      );
    },
  };
  const onPool: Db['sql'] = {
    query: async (text) => {
      beforeStatement();
      return t.db.sql.query(text);
    },
  };
  return new Proxy(t.db, {
    get: (db, name) => (name === 'sql' ? onPool : name === 'prisma' ? prisma : (Reflect.get(db, name) as unknown)),
  });
}

/** A process that dies behind the given number of statements: what it was doing is rolled back, and it does nothing more. */
const dyingAfter = (statements: number): Db =>
  dbWith({
    statement: (n) => {
      if (n > statements) throw new Error('this process is dead');
    },
  });
