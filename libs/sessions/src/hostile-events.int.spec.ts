import { isDomainError, type JsonObject, type JsonValue, type NewSessionEvent } from '@runplane/contracts';
import { ensureTenant } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { acquireSessionLease } from './session-lease';
import { appendSessionEvents } from './append-session-events';
import { loadSession } from './read-session-events';
import { rebuildSession } from './rebuild/rebuild-session';
import { createSessions } from './sessions';

// What tools and models really say. Each text goes into each field of each type that a view reads: the fact is recorded, repaired where the rule
// says so, or refused as the caller's mistake; whatever came in, the log takes the next event, loads, and its views can be built anew.

const t = useDatabase();
const tenantId = 'acme';
beforeAll(() => ensureTenant(t.db.sql, tenantId));

const deep = (levels: number): JsonValue => (levels === 0 ? 'x' : [deep(levels - 1)]);

const VALUES: Record<string, JsonValue> = {
  NUL: 'a\u0000b',
  'a lone surrogate': 'a\ud800b',
  'only NUL': '\u0000',
  emoji: '👩‍👩‍👧 🏳️‍🌈 e\u0301',
  'line breaks and tabs': 'a\nb\r\n\tc\u2028d',
  'a text that is JSON': '{"a":1}',
  'a text like an array of PostgreSQL': '{NULL,"a"}',
  'an empty text': '',
  'a long text': 'ä'.repeat(100_000),
  'a text beyond an event': 'x'.repeat(1_100_000),
  'a text of 3 kB without sense': Buffer.from(Array.from({ length: 3_000 }, (_, i) => (i * 7_919) % 256)).toString('latin1'),
  'the greatest integer': Number.MAX_SAFE_INTEGER,
  'an integer beyond it': 2 ** 60,
  'a fraction': 1.5,
  nothing: null,
  true: true,
  'an empty object': {},
  'a key with NUL': { 'a\u0000b': 1 },
  'a key __proto__': JSON.parse('{"__proto__":{"admin":true},"constructor":{"prototype":{}}}') as JsonValue,
  'sixty levels': deep(60),
  'six thousand levels': deep(6_000),
};

/** Fields of known types, and `?` for one that nobody knows. */
const FIELDS: readonly (readonly [type: string, data: (value: JsonValue) => JsonObject])[] = [
  ['user/message', (content) => ({ content })],
  ['assistant/message', (text) => ({ message: { content: [{ type: 'text', text }] } })],
  ['tool/call', (name) => ({ name, arguments: 'x' })],
  ['tool/call', (args) => ({ name: 'x', arguments: args })],
  ['tool/result', (message) => ({ message })],
  ['context/window-started', (windowId) => ({ windowId, trigger: 'x' })],
  ['context/window-started', (trigger) => ({ windowId: 'w', trigger })],
  ['context/note-written', (path) => ({ path, text: 'x' })],
  ['context/note-appended', (text) => ({ path: 'p', text })],
  ['compaction/checkpoint', (carried) => ({ windowId: 'w', carriedEventSequences: [carried] })],
  ['input/enqueued', (id) => ({ input_id: id })],
  ['agent/inbox/spliced', (index) => ({ target: 'next-turn', index, inserted: [{ input_id: index }] })],
  ['subagent/descriptor', (name) => ({ name })],
  ['subagent/settled', (activity) => ({ activity })],
  ['channel/bound', (id) => ({ channel_id: 'c', account_id: 'a', conversation_id: id, extra: id })],
  ['channel/inbound', (id) => ({ channel_id: 'c', account_id: 'a', conversation_id: 'c', message_id: id, text: id })],
  ['channel/delivery/queued', (id) => ({ delivery_id: id, text: id })],
  ['channel/delivery/failed', (error) => ({ delivery_id: 'd', error })],
  ['approval/requested', (reason) => ({ approval_id: 'a', tool_name: reason, arguments_summary: { reason }, reason })],
  ['user-input/requested', (prompt) => ({ request_id: 'r', prompt, input_schema: {}, expires_at_ms: 4_000_000_000_000 })],
  ['execution/recovery', (attention) => ({ attention_required: attention })],
  ['nobody/knows', (value) => ({ value, '?': [value] })],
];

test.each(Object.entries(VALUES))('%s, in whatever field: recorded or refused, and the log goes on', async (name, value) => {
  const sessionId = `hostile ${name}`;
  await createSessions(t.db).createSession({ tenantId, header: { id: sessionId } });
  const { epoch } = await acquireSessionLease(t.db, { tenantId, sessionId, owner: 'worker' });
  const append = (...events: NewSessionEvent[]) => appendSessionEvents(t.db, { tenantId, sessionId, epoch, events });

  const outcomes: string[] = [];
  for (const [type, data] of FIELDS) {
    const outcome = await append({ type, data: data(value) }).then(
      () => 'recorded',
      (error: unknown) => (isDomainError(error) && !error.retryable ? error.code : String(error)),
    );
    outcomes.push(outcome);
  }
  expect(outcomes.filter((outcome) => !['recorded', ...REFUSALS].includes(outcome))).toEqual([]);

  const { events } = await append({ type: 'turn/start', turnId: 't', data: {} }, { type: 'user/message', data: { content: 'still here' } });
  expect(events.map(({ sequence }) => sequence)).toEqual(
    [0, 1].map((i) => outcomes.filter((outcome) => outcome === 'recorded').length + i),
  );
  const types: string[] = [];
  for await (const event of (await loadSession(t.db, { tenantId, sessionId })).events) types.push(event.type);
  expect(types).toHaveLength((events.at(-1)?.sequence ?? 0) + 1);
  await t.db.pool.query('UPDATE runplane.session_heads SET views_version = 0 WHERE tenant_id = $1 AND session_id = $2', [
    tenantId,
    sessionId,
  ]);
  expect(await rebuildSession(t.db, { tenantId, sessionId }, { owner: 'rebuild' })).toMatchObject({ changedRows: 0 });
});

const REFUSALS = [
  'invalid_request',
  'invalid_json',
  'payload_too_large',
  'approval_conflict',
  'input_request_conflict',
  'duplicate_inbound',
];
