import {
  APPEND_BYTES_MAX,
  EVENT_BYTES_MAX,
  isDomainError,
  RESERVED_PHASES,
  type RUNNER_EVENTS,
  type JsonObject,
  type NewRunEvent,
} from '@runplane/contracts';
import { storableRunnerEvent, storableRunnerEvents } from './run-event-input';

/** A good payload of each type that a runner may write; a new type without one fails the first test. */
const GOOD: Record<keyof typeof RUNNER_EVENTS, JsonObject> = {
  assistant_message: { text: 'hi' },
  reasoning: { text: 'hm' },
  tool_call: { callId: 'c1', name: 'ls', arguments: { path: '.' } },
  tool_result: { callId: 'c1', status: 'ok', output: ['a'] },
  command_output: { stream: 'stdout', text: 'line\n' },
  file_change: { path: 'a.txt', change: 'created', bytes: 3 },
  usage: { model: 'm', inputTokens: 1, outputTokens: 2 },
  error: { message: 'no', failureKind: 'timeout' },
  backend_status: { phase: 'thinking' },
};
const event = (type: string, payload: JsonObject): NewRunEvent => ({ type, payload });

function codeOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (isDomainError(error)) return error.code;
    throw error;
  }
  return 'accepted';
}

test.each(Object.entries(GOOD))('a runner may write %s', (type, payload) => {
  const stored = storableRunnerEvent(event(type, payload));
  expect(stored).toMatchObject({ type, commandId: null });
  expect(JSON.parse(stored.payloadText)).toMatchObject(payload);
  expect(stored.id).toMatch(/^evt_/);
});

test('an event names its command, and a call or result of a tool its call', () => {
  expect(storableRunnerEvent(event('tool_call', { ...GOOD.tool_call, commandId: 'cmd_1' }))).toMatchObject({
    commandId: 'cmd_1',
    toolCallId: 'c1',
  });
  expect(storableRunnerEvent(event('tool_result', GOOD.tool_result))).toMatchObject({ toolCallId: 'c1' });
  expect(storableRunnerEvent(event('custom/call', { callId: 'c1', commandId: 7 }))).toMatchObject({ commandId: null, toolCallId: null });
});

test('an event of a name of the team’s own is kept as it is', () => {
  const payload = { b: 1, a: [{ z: null }] };
  expect(storableRunnerEvent(event('custom/thing', payload)).payloadText).toBe('{"b":1,"a":[{"z":null}]}');
});

test.each([
  ['user_message', { text: 'forged' }],
  ['terminal_status', { terminalStatus: 'completed' }],
  ...RESERVED_PHASES.map((phase): [string, JsonObject] => ['backend_status', { phase: phase.endsWith('-') ? `${phase}x` : phase }]),
])('only the server writes %s %j', (type, payload) => {
  expect(codeOf(() => storableRunnerEvent(event(type, payload)))).toBe('reserved_event_type');
});

test('a phase that only begins like a reserved word is the runner’s', () => {
  expect(codeOf(() => storableRunnerEvent(event('backend_status', { phase: 'run-created-late' })))).toBe('accepted');
});

test.each([
  ['an unknown type', 'nonsense', {}],
  ['a type that every object has', 'constructor', {}],
  ['another prototype’s name', '__proto__', {}],
  ['a custom type without a name', 'custom/', {}],
  ['a custom type in capitals', 'custom/Thing', {}],
  ['a surplus field', 'assistant_message', { text: 'x', surplus: 1 }],
  ['a missing field', 'tool_call', { callId: 'a', name: 'ls' }],
  ['a field of another kind', 'usage', { model: 'm', inputTokens: 'many', outputTokens: 1 }],
  ['a negative count', 'usage', { model: 'm', inputTokens: -1, outputTokens: 1 }],
  ['a word that is not on the list', 'tool_result', { callId: 'a', status: 'fine', output: null }],
  ['an empty call id', 'tool_call', { callId: '', name: 'ls', arguments: null }],
])('%s is an invalid request', (_what, type, payload) => {
  expect(codeOf(() => storableRunnerEvent(event(type, payload)))).toBe('invalid_request');
});

test('characters that PostgreSQL cannot store are repaired in texts and refused in keys', () => {
  const stored = storableRunnerEvent(event('assistant_message', { text: 'a\u0000b\ud800c' }));
  expect(JSON.parse(stored.payloadText)).toMatchObject({ text: 'a\ufffdb\ufffdc' });
  expect(codeOf(() => storableRunnerEvent(event('custom/x', { 'a\u0000': 1 })))).toBe('invalid_json');
  expect(codeOf(() => storableRunnerEvent(event('custom/x', { n: 2 ** 53 })))).toBe('invalid_json');
});

test('secrets are masked before they are stored', () => {
  expect(storableRunnerEvent(event('custom/x', { password: 'hunter2', nested: { api_key: 'abc' } })).payloadText).toBe(
    '{"password":"[redacted]","nested":{"api_key":"[redacted]"}}',
  );
});

test('one event, and the events of one call together, have a greatest size', () => {
  const big = 'x'.repeat(EVENT_BYTES_MAX - 100);
  expect(codeOf(() => storableRunnerEvent(event('custom/x', { big })))).toBe('accepted');
  expect(codeOf(() => storableRunnerEvent(event('custom/x', { big: `${big}${'x'.repeat(200)}` })))).toBe('payload_too_large');
  const batch = Array.from({ length: Math.floor(APPEND_BYTES_MAX / EVENT_BYTES_MAX) + 1 }, () => event('custom/x', { big }));
  expect(codeOf(() => storableRunnerEvents(batch))).toBe('payload_too_large');
  expect(storableRunnerEvents(batch.slice(1)).events).toHaveLength(batch.length - 1);
});
