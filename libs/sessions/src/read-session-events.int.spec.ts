import { ensureTenant, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import type { ReadSessionEvents, SessionEvent } from '@runplane/contracts';
import { appendSessionEvents } from './append-session-events';
import { listSessionLogs } from './list-session-logs';
import { loadSession, readSessionEvents, readSessionLines, streamSessionEvents, waitForSessionEvents } from './read-session-events';
import { sessionProbe } from './session-event.sql';
import { createSessions } from './sessions';

const t = useDatabase();
const tenantId = 'acme';
const key = { tenantId, sessionId: 'log' };
const append = (...texts: string[]) =>
  appendSessionEvents(t.db, { ...key, events: texts.map((text) => ({ type: 'metrics/said', data: { text }, turnId: 't1' })) });

beforeAll(async () => {
  await ensureTenant(t.db.sql, tenantId, { leaselessEventTypes: ['metrics/*'] });
  await createSessions(t.db).createSession({ tenantId, header: { id: 'log', parent_session_id: '会', __proto: 1 } });
  await append(...Array.from({ length: 10 }, (_, i) => `${i}`));
});

const sequencesOf = (events: readonly SessionEvent[]) => events.map(({ sequence }) => sequence);

test.each<[ReadSessionEvents, number[]]>([
  [{}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
  [{ from: 7 }, [7, 8, 9]],
  [{ from: 10 }, []],
  [{ after: -1, limit: 2 }, [0, 1]],
  [{ after: 3, limit: 2 }, [4, 5]],
  [{ before: 5, limit: 2 }, [3, 4]],
  [{ before: 0, limit: 2 }, []],
  [{ before: 99, limit: 3 }, [7, 8, 9]],
])('a page %j', async (place, expected) => {
  const { events, lastSequence } = await readSessionEvents(t.db, { ...key, ...place });
  expect(sequencesOf(events)).toEqual(expected);
  expect(lastSequence).toBe(9);
});

test.each<[ReadSessionEvents]>([
  [{ from: -1 }],
  [{ after: -2 }],
  [{ before: -1 }],
  [{ limit: 0 }],
  [{ limit: 501 }],
  [{ from: 1, after: 1 }],
])('a page %j is refused', async (place) => {
  await expect(readSessionEvents(t.db, { ...key, ...place })).rejects.toMatchObject({ code: 'invalid_request' });
});

test('a page ends with the event that passes 4 MiB, counted from its place', async () => {
  await createSessions(t.db).createSession({ tenantId, header: { id: 'large' } });
  const large = { tenantId, sessionId: 'large' };
  for (let i = 0; i < 6; i += 1) {
    await appendSessionEvents(t.db, { ...large, events: [{ type: 'metrics/x', data: { text: 'x'.repeat(1_000_000) } }] });
  }
  expect(sequencesOf((await readSessionEvents(t.db, large)).events)).toEqual([0, 1, 2, 3, 4]);
  expect(sequencesOf((await readSessionEvents(t.db, { ...large, before: 6 })).events)).toEqual([1, 2, 3, 4, 5]);
  const loaded = await loadSession(t.db, large);
  const seen: number[] = [];
  for await (const { sequence } of loaded.events) seen.push(sequence);
  expect(seen).toEqual([0, 1, 2, 3, 4, 5]);
});

test('lines are the header and the events, verbatim', async () => {
  const lines: string[] = [];
  for await (const line of readSessionLines(t.db, key)) lines.push(line);
  expect(lines[0]).toBe('{"type":"session","id":"log","parent_session_id":"会","__proto":1}\n');
  expect(lines[1]).toMatch(
    /^\{"sequence":0,"type":"metrics\/said","time":"[^"]+Z","turnId":"t1","stepId":null,"data":\{"text":"0"\},"eventId":"[0-9a-f]{32}"\}\n$/,
  );
  expect(lines).toHaveLength(11);
});

test('a log with a hole does not load', async () => {
  await createSessions(t.db).createSession({ tenantId, header: { id: 'hole' } });
  const hole = { tenantId, sessionId: 'hole' };
  await appendSessionEvents(t.db, { ...hole, events: ['a', 'b', 'c'].map((text) => ({ type: 'metrics/x', data: { text } })) });
  await t.db.sql.query(sql`CREATE TABLE kept AS SELECT * FROM runplane.session_events WHERE session_id = 'hole' AND sequence = 1`);
  await t.db.sql.query(sql`DELETE FROM runplane.session_events WHERE session_id = 'hole' AND sequence = 1 RETURNING 1 AS n`);
  const loaded = await loadSession(t.db, hole);
  await expect(
    (async () => {
      for await (const { sequence } of loaded.events) void sequence;
    })(),
  ).rejects.toThrow('has no event 1, but 2');
  await t.db.sql.query(sql`INSERT INTO runplane.session_events SELECT * FROM kept RETURNING 1 AS n`);
});

test('a reader waits for what comes, and follows it live', async () => {
  const waiting = waitForSessionEvents(t.db, { ...key, after: 9, waitMs: 10_000 });
  const stop = new AbortController();
  const followed: number[] = [];
  const following = (async () => {
    for await (const events of streamSessionEvents(t.db, { ...key, after: 7, signal: stop.signal })) {
      followed.push(...sequencesOf(events));
      if (followed.at(-1) === 10) stop.abort();
    }
  })();
  await append('new');
  expect(sequencesOf((await waiting).events)).toEqual([10]);
  await following;
  expect(followed).toEqual([8, 9, 10]);
  expect(await waitForSessionEvents(t.db, { ...key, after: 10, waitMs: 20 })).toMatchObject({ events: [], lastSequence: 10 });
  expect(await sessionProbe.versionsOf(t.db.sql, ['acme/log', 'acme/none'])).toEqual(new Map([['acme/log', '10']]));
});

test('a reader that has slept through the end of a life of the id does not go on in the next one', async () => {
  const stop = new AbortController();
  const follow = streamSessionEvents(t.db, { ...key, after: 9, signal: stop.signal });
  expect(sequencesOf((await follow.next()).value ?? [])).toEqual([10]);
  const { incarnation } = await readSessionEvents(t.db, key);
  const waiting = waitForSessionEvents(t.db, { ...key, incarnation, after: 10, waitMs: 10_000 });
  const rest = follow.next();
  const refused = { code: 'other_incarnation', data: { incarnation: 'the next one' } };
  const endings = [expect(waiting).rejects.toMatchObject(refused), expect(rest).rejects.toMatchObject(refused)];
  await t.db.pool.query(`UPDATE runplane.session_heads SET incarnation = 'the next one' WHERE session_id = 'log'`);
  t.db.changed(['session:acme/log']);
  await Promise.all(endings);
});

test('an unknown session, and one of another tenant, is not found', async () => {
  await expect(readSessionEvents(t.db, { tenantId, sessionId: 'none' })).rejects.toMatchObject({ code: 'session_not_found' });
  await expect(readSessionEvents(t.db, { tenantId: 'other', sessionId: 'log' })).rejects.toMatchObject({ code: 'session_not_found' });
  await expect(loadSession(t.db, { tenantId: 'other', sessionId: 'log' })).rejects.toMatchObject({ code: 'session_not_found' });
});

test('headers are listed newest first, page by page', async () => {
  await ensureTenant(t.db.sql, 'listed');
  for (let i = 0; i < 5; i += 1) await createSessions(t.db).createSession({ tenantId: 'listed', header: { id: `s${i}`, i } });
  await t.db.sql.query(
    sql`UPDATE runplane.session_heads SET created_at = '2026-01-01' WHERE tenant_id = 'listed' AND session_id <> 's4' RETURNING 1 AS n`,
  );
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await listSessionLogs(t.db, { tenantId: 'listed', limit: 2, ...(cursor === undefined ? {} : { cursor }) });
    ids.push(...page.sessions.map(({ sessionId }) => sessionId));
    cursor = page.cursor ?? undefined;
  } while (cursor !== undefined);
  expect(ids).toEqual(['s4', 's0', 's1', 's2', 's3']);
  await expect(listSessionLogs(t.db, { tenantId, cursor: 'x' })).rejects.toMatchObject({ code: 'invalid_cursor' });
});
