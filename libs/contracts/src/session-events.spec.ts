import { InvalidRequest } from './errors';
import type { JsonObject } from './json';
import { checkSessionEvent, fieldOf, SESSION_EVENT_TYPES, SessionEventType } from './session-events';

function issuesOf(type: string, data: JsonObject): string[] {
  try {
    checkSessionEvent(type, data);
  } catch (error) {
    if (error instanceof InvalidRequest) return error.data.issues.map(({ path }) => path);
    throw error;
  }
  return [];
}

describe('checkSessionEvent', () => {
  it.each<[string, JsonObject]>([
    ['tool/finished', { anything: [null] }],
    ['toString', {}],
    ['user/message', { content: 'x', extra: { toString: 1 } }],
    ['submission/accepted', { operation_id: 'o', submission_id: 's', kind: 'turn', payload: [1], source: null, expected_revision: null }],
    ['submission/accepted', { operationId: 'o', submissionId: 's', kind: 'turn', expectedRevision: 4 }],
    ['approval/requested', { approval_id: 'a', turn_id: null, arguments_summary: [], timeout_seconds: -1, more: true }],
    ['approval/resolved', { approvalId: 'a', resolution: 'approved', actor: { type: 'user', id: 'u', team: 'x' } }],
    ['user-input/requested', { requestId: 'r', expiresAtMs: 1, input_schema: {} }],
    ['channel/inbound', { channel_id: 'tg', account_id: 1, conversation_id: 0, message_id: '' }],
    ['channel/bound', { channel_id: null, channelId: true }],
    ['context/window-started', { window_id: 'w', previousWindowId: null }],
    ['compaction/checkpoint', { windowId: 'w', carriedEventSequences: [2, true, 'x'] }],
    ['tool/call', { name: 'n', arguments: { a: 1 } }],
    ['agent/inbox/spliced', { target: 'next-turn', index: 9, delete_count: 1, inserted: [{ inputId: 'c', wakeup: false }, {}] }],
    ['input/enqueued', { message_source: null }],
    ['execution/recovery', { attention_required: null }],
    ['turn/start', {}],
  ])('takes %s %j', (type, data) => {
    expect(issuesOf(type, data)).toEqual([]);
  });

  it.each<[string, JsonObject, string[]]>([
    ['submission/accepted', {}, ['data.operation_id', 'data.submission_id', 'data.kind']],
    ['submission/failed', { operation_id: 'o', error: { code: 1 } }, ['data.error']],
    ['approval/requested', { approval_id: null, approvalId: 'hidden by the null before it' }, ['data.approval_id']],
    ['approval/requested', { approval_id: 'a\0b' }, ['data.approval_id']],
    ['approval/requested', { approval_id: 'a', timeout_seconds: null }, ['data.timeout_seconds']],
    ['approval/requested', { approval_id: 'a', timeoutSeconds: '300' }, ['data.timeout_seconds']],
    ['approval/requested', { approval_id: 'a', timeout_seconds: 1e300 }, ['data.timeout_seconds']],
    ['approval/resolved', { approval_id: 'a', resolution: 'pending' }, ['data.resolution']],
    ['approval/resolved', { approval_id: 'a', actor: 'me' }, ['data.actor']],
    ['user-input/requested', { request_id: 'r' }, ['data.expires_at_ms']],
    ['user-input/requested', { request_id: 'r', expires_at_ms: 8e15 }, ['data.expires_at_ms']],
    ['user-input/resolved', { request_id: 'r', outcome: 'pending' }, ['data.outcome']],
    ['channel/bound', { channelId: true }, ['data.channel_id']],
    ['channel/bound', { channel_id: '"'.repeat(190), account_id: '"'.repeat(190), conversation_id: '"'.repeat(190) }, ['data']],
    ['channel/delivery/failed', { delivery_id: 7 }, ['data.delivery_id']],
    ['context/window-started', { windowId: null }, ['data.windowId']],
    ['context/window-started', { started_sequence: 1.5 }, ['data.startedSequence']],
    ['context/note-written', { path: 'p', text: { a: 1 } }, ['data.text']],
    ['context/note-written', { path: '会'.repeat(342) }, ['data.path']],
    ['agent/inbox/spliced', { index: '0' }, ['data.index']],
    ['agent/inbox/spliced', { inserted: {} }, ['data.inserted']],
    ['agent/inbox/spliced', { inserted: [{ input_id: 1 }] }, ['data.inserted.0.input_id']],
    ['input/enqueued', { wakeup: 'yes', message_source: 'tg' }, ['data.wakeup', 'data.message_source']],
    ['tool/call', { name: null }, ['data.name']],
  ])('refuses %s %j', (type, data, paths) => {
    expect(issuesOf(type, data)).toEqual(paths);
  });

  it('reads fields in both case styles, and nothing of a prototype', () => {
    expect(fieldOf({ window_id: 'a' }, 'windowId')).toBe('a');
    expect(fieldOf({ windowId: null, window_id: 'a' }, 'windowId')).toBeNull();
    expect(fieldOf({}, 'constructor')).toBeUndefined();
    expect(fieldOf({ expiresAtMs: 1 }, 'expires_at_ms')).toBe(1);
  });

  it('names known types by the pattern of all types', () => {
    expect(SESSION_EVENT_TYPES.filter((type) => !SessionEventType.safeParse(type).success)).toEqual([]);
    for (const type of ['', '/', 'a//b', 'A', 'a b', 'a/', 'a_b', `a${'/b'.repeat(48)}`])
      expect(SessionEventType.safeParse(type).success).toBe(false);
  });
});
