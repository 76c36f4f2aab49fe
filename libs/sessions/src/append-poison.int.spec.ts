import { isDomainError, JSON_DEPTH_MAX, type JsonValue, type NewSessionEvent } from '@runplane/contracts';
import { ensureTenant } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendSessionEvents } from './append-session-events';
import { loadSession } from './read-session-events';
import { VIEWS_VERSION } from './projections';
import { rebuildSession } from './rebuild/rebuild-session';
import { acquireSessionLease } from './session-lease';
import { createSessions } from './sessions';

// What no text column, no JSON parser or no index takes, in every field of an append: recorded as repaired, or refused; never a log that takes
// nothing more, cannot be loaded, or cannot be rebuilt.

const t = useDatabase();
const tenantId = 'acme';
let epoch: number;
const key = { tenantId, sessionId: 'poisoned' };
beforeAll(async () => {
  await ensureTenant(t.db.sql, tenantId);
  await createSessions(t.db).createSession({ tenantId, header: { id: key.sessionId } });
  ({ epoch } = await acquireSessionLease(t.db, { ...key, owner: 'w', leaseMs: 600_000 }));
});

const deep = (levels: number): JsonValue => JSON.parse('['.repeat(levels) + ']'.repeat(levels)) as JsonValue;
const VALUES: Record<string, unknown> = {
  'a NUL': 'a\u0000b',
  'a lone surrogate': 'a\ud800b',
  'a key with a NUL': { 'a\u0000': 1 },
  'an own __proto__': JSON.parse('{"__proto__":{"role":"admin"},"constructor":{"prototype":{}}}') as unknown,
  'a number beyond 2^53': 2 ** 60,
  'too deep': deep(JSON_DEPTH_MAX + 1),
  'as deep as may be': deep(JSON_DEPTH_MAX - 2),
  'a megabyte and more': 'x'.repeat(1_100_000),
  'half a megabyte': '\u0000'.repeat(150_000), // repaired, each is three bytes
  'an emoji, a flag and what joins them': '👩‍👩‍👧 🇩🇪 e\u0301 𠀀',
  null: null,
  'an array': [1, 'a', null, { b: [] }],
  undefined: undefined,
  'not a number': Number.NaN,
  'a date': new Date(0),
  'JSON in a text': '{"a":1}\\u0000',
};

/** Where a value may stand: in what is kept, shown, searched for, or looked up. */
const FIELDS: Record<string, (value: never, n: number) => NewSessionEvent | NewSessionEvent[]> = {
  'data of a type that nobody knows': (value) => ({ type: 'custom/any', data: { value } }),
  'all of data': (value) => ({ type: 'custom/any', data: value }),
  'its type': (value) => ({ type: value, data: {} }),
  'a turn’s id': (value) => ({ type: 'turn/start', data: {}, turnId: value }),
  'a step’s id': (value) => ({ type: 'step/start', data: {}, step_id: value }),
  'its time': (value) => ({ type: 'custom/any', data: {}, time: value }),
  'what a person said': (value) => ({ type: 'user/message', data: { content: value } }),
  'what a tool answered': (value) => ({ type: 'tool/result', data: { message: { content: [{ text: value }] } } }),
  'arguments of a call': (value) => ({ type: 'tool/call', data: { name: 'ls', arguments: value } }),
  'a call’s name': (value) => ({ type: 'tool/call', data: { name: value, arguments: '' } }),
  'a note': (value) => ({ type: 'context/note-written', data: { path: 'p', text: value } }),
  'a note’s path': (value) => ({ type: 'context/note-appended', data: { path: value, text: 'x' } }),
  'a window': (value) => ({ type: 'context/window-started', data: { windowId: value, trigger: value } }),
  'an inbound message': (value, n) => ({
    type: 'channel/inbound',
    data: { channel_id: 'c', account_id: 'a', conversation_id: value, message_id: `m${n}`, body: value },
  }),
  'a delivery': (value) => ({ type: 'channel/delivery/failed', data: { delivery_id: value, error: value } }),
  'an input': (value) => ({
    type: 'input/enqueued',
    data: { input_id: value, target: value, message_source: { channel_id: value } },
    turnId: 't',
  }),
  'a splice': (value) => ({ type: 'agent/inbox/spliced', data: { target: 'next-turn', index: value, inserted: [{ input_id: value }] } }),
  'a subagent': (value) => ({ type: 'subagent/descriptor', data: { name: value, status: value } }),
  'an approval': (value, n) => ({
    type: 'approval/requested',
    data: { approval_id: `a${n}`, tool_name: value, arguments_summary: value, reason: value },
  }),
  'an approval’s id': (value) => ({ type: 'approval/requested', data: { approval_id: value } }),
  'a request': (value, n) => ({
    type: 'user-input/requested',
    data: { request_id: `r${n}`, prompt: value, input_schema: {}, expires_at_ms: Date.now() + 60_000 },
  }),
  'a recovery': (value) => ({ type: 'execution/recovery', data: { attention_required: value } }),
};

test('every field takes what it can keep, and refuses the rest before anything is written', async () => {
  const refused: string[] = [];
  let n = 0;
  for (const [field, eventOf] of Object.entries(FIELDS)) {
    for (const [name, value] of Object.entries(VALUES)) {
      n += 1;
      try {
        await appendSessionEvents(t.db, { ...key, epoch, events: [eventOf(value as never, n)].flat() });
      } catch (error) {
        if (!isDomainError(error)) throw new Error(`${field}, ${name}: ${String(error)}`, { cause: error });
        refused.push(error.code);
      }
    }
  }
  const known = ['invalid_request', 'invalid_json', 'payload_too_large', 'invalid_identifier', 'duplicate_inbound', 'request_conflict'];
  expect(refused.filter((code) => !known.includes(code))).toEqual([]);
  expect(refused.length).toBeLessThan(n * 0.8);

  const { lastSequence } = await appendSessionEvents(t.db, { ...key, epoch, events: [{ type: 'custom/any', data: {} }] });
  const loaded = await loadSession(t.db, key);
  let count = 0;
  for await (const { data } of loaded.events) {
    count += 1;
    expect(JSON.stringify(data)).not.toMatch(/(?<!\\)\\u(0000|d[89a-f])/);
  }
  expect(count).toBe(lastSequence + 1);
  expect(({} as { role?: string }).role).toBeUndefined();
  expect(await rebuildSession(t.db, key, { owner: 'r' })).toMatchObject({ changedRows: 0, viewsVersion: VIEWS_VERSION });
});
