import { DuplicateInbound, type JsonObject } from '@runplane/contracts';
import { emptyContext, told, type Told } from '../testing/told';
import { addressOf, channelProjection, inboundKeyOf, inboundName, type ChannelState } from './channel';
import { RepeatedEvent } from './projection';
import { subagentProjection, type SubagentState } from './subagent';

const foldOf = (...entries: readonly Told[]): ChannelState =>
  told(...entries).reduce((state, event) => channelProjection.apply(state, event), channelProjection.initial(undefined, emptyContext));
const here: JsonObject = { channel_id: 'tg', account_id: 'acct', conversation_id: 42 };
const HERE = '["tg","acct","42"]';

describe('keys of a channel', () => {
  it.each<[JsonObject, string | undefined, string | undefined]>([
    [{ channel_id: 'tg', account_id: 1, conversation_id: 'é"', message_id: 9 }, '["tg","1","é\\""]', '["tg","1","é\\""]:"9"'],
    [{ channelId: 'tg', accountId: 'a', conversationId: 'c', messageId: 'm' }, '["tg","a","c"]', '["tg","a","c"]:"m"'],
    [{ channel_id: null, channelId: 'tg', account_id: 'a', conversation_id: 'c', message_id: 'm' }, undefined, undefined],
    [{ channel_id: 'tg', account_id: 'a', conversation_id: 0, message_id: 'm' }, undefined, undefined],
    [{ channel_id: 'tg', account_id: 'a', conversation_id: '', message_id: 'm' }, undefined, undefined],
    [{ channel_id: 'tg', account_id: 'a', conversation_id: ['c'], message_id: 'm' }, undefined, undefined],
    [{ channel_id: 'tg', account_id: 'a', conversation_id: 'c' }, '["tg","a","c"]', undefined],
    [{ channel_id: 'x'.repeat(201), account_id: 'a', conversation_id: 'c' }, undefined, undefined],
  ])('of %j', (data, address, inbound) => {
    expect(addressOf(data)).toBe(address);
    const key = inboundKeyOf(data);
    expect(key && inboundName(key)).toBe(inbound);
  });
});

describe('the fold of channels', () => {
  it.each<[string, Told[], Partial<Record<keyof ChannelState, [string, unknown][]>>]>([
    ['binds', [['channel/bound', { ...here, note: 'x' }]], { bindings: [[HERE, { sequence: 0, data: { ...here, note: 'x' } }]] }],
    [
      'unbinds',
      [
        ['channel/bound', here],
        ['channel/unbound', { channelId: 'tg', accountId: 'acct', conversationId: '42' }],
      ],
      { bindings: [[HERE, null]] },
    ],
    ['binds nothing without an address', [['channel/bound', {}]], { bindings: [] }],
    [
      'takes the last of two messages of one key, which only an import has',
      [
        ['channel/inbound', { ...here, message_id: 9 }],
        ['channel/inbound', { ...here, message_id: 9, text: 'b' }],
      ],
      {
        inbounds: [
          [
            `${HERE}:"9"`,
            { address: HERE, messageId: '9', sequence: 1, time: 1_700_000_000_001, data: { ...here, message_id: 9, text: 'b' } },
          ],
        ],
      },
    ],
    [
      'keeps the last source of a turn as its route, until the turn ends',
      [
        ['input/enqueued t1', { message_source: here }],
        ['input/enqueued t1', { message_source: { ...here, at: 2 } }],
        'turn/end t1',
        'turn/end t2',
        'turn/end',
      ],
      {
        routes: [
          ['t1', { sequence: 1, source: { ...here, at: 2 }, endedAt: 1_700_000_000_002 }],
          ['t2', { sequence: 3, source: undefined, endedAt: 1_700_000_000_003 }],
        ],
      },
    ],
    [
      'routes nothing without a turn, an object or an address',
      [
        ['input/enqueued', { message_source: here }],
        ['input/enqueued t1', { message_source: 'tg' }],
        ['input/enqueued t1', { message_source: {} }],
      ],
      { routes: [] },
    ],
    ['does not know other events of channels', [['channel/typing', here]], { bindings: [], inbounds: [], routes: [], deliveries: [] }],
  ])('%s', (_, entries, rows) => {
    const state = foldOf(...entries);
    for (const [name, expected] of Object.entries(rows)) expect([...state[name as keyof ChannelState]]).toEqual(expected);
  });

  const delivery = (what: string, more: JsonObject = {}): Told => [`channel/delivery/${what}`, { delivery_id: 'd', ...more }];
  it.each<[Told[], JsonObject]>([
    [
      [delivery('queued', { to: 'x' })],
      { state: 'queued', isQueuedHere: true, data: { delivery_id: 'd', to: 'x' }, queuedSequence: 0, completedSequence: null },
    ],
    [[delivery('queued'), delivery('succeeded')], { state: 'succeeded', queuedSequence: 0, completedSequence: 1, error: null }],
    [[delivery('queued'), delivery('failed', { error: { code: 7 } })], { state: 'failed', completedSequence: 1, error: '{"code":7}' }],
    [
      [delivery('failed', { error: 'token=abcdefghijklmnop refused' })],
      { state: 'failed', isQueuedHere: false, data: null, queuedSequence: null },
    ],
    [
      [delivery('queued'), delivery('failed', { error: 'no' }), delivery('queued', { again: 1 })],
      { state: 'queued', queuedSequence: 2, completedSequence: null, error: null },
    ],
  ])('follows deliveries %j', (entries, expected) => {
    expect(foldOf(...entries).deliveries.get('d')).toMatchObject(expected);
  });

  it('passes over deliveries without an id, and keeps no secrets of an error', () => {
    expect(foldOf(['channel/delivery/queued', {}], ['channel/delivery/failed', { delivery_id: 7 }]).deliveries.size).toBe(0);
    expect(foldOf(delivery('failed', { error: 'Authorization: Bearer abcdefghijklmnop' })).deliveries.get('d')?.error).not.toContain(
      'abcdefghijklmnop',
    );
  });

  it('a message that has come in already is refused with the place where it is', () => {
    const stored = channelProjection.initial([{ address: HERE, messageId: '9', sequence: '3' }], emptyContext);
    const guard = (data: JsonObject): void => {
      for (const event of told(['channel/inbound', data])) channelProjection.guard?.(stored, event);
    };
    expect(() => guard({ ...here, messageId: 8 })).not.toThrow();
    expect(() => guard(here)).not.toThrow();
    const repeated = new RepeatedEvent(3, new DuplicateInbound('This message came in as event 3.', { sequence: 3 }));
    expect(() => guard({ ...here, messageId: 9 })).toThrow(repeated);
  });
});

describe('the identity of a subagent', () => {
  const context = { ...emptyContext, header: { id: 's', parent_session_id: 'p' } };
  const identityOf = (loaded: unknown, ...entries: Told[]): SubagentState =>
    told(...entries).reduce((state, event) => subagentProjection.apply(state, event), subagentProjection.initial(loaded, context));

  it.each<[unknown, Told[], JsonObject | undefined]>([
    [
      undefined,
      [['subagent/descriptor', { name: 'n', status: 'x', session_id: 'y' }]],
      { name: 'n', status: 'ready', session_id: 's', parent_session_id: 'p' },
    ],
    [undefined, ['subagent/ended'], undefined],
    [{ value: { name: 'n' } }, ['subagent/activation-started'], { name: 'n', status: 'activation-started' }],
    [{ value: { name: 'n' } }, [['subagent/settled', { status: 'done' }]], { name: 'n', status: 'done' }],
    [{ value: { name: 'n' } }, [['subagent/failed', { activity: 'late', status: 'done' }]], { name: 'n', status: 'late' }],
    [
      { value: { name: 'n' } },
      [
        ['subagent/ended', { activity: '', status: null }],
        ['subagent/descriptor', {}],
      ],
      { session_id: 's', parent_session_id: 'p', status: 'ready' },
    ],
  ])('%j and %j make %j', (loaded, entries, value) => {
    expect(identityOf(loaded, ...entries).value).toEqual(value);
  });

  it('is written only where it has changed', () => {
    expect(subagentProjection.writes(identityOf({ value: {} }))).toEqual([]);
    expect(subagentProjection.writes(identityOf({ value: {} }, 'subagent/ended'))).toHaveLength(1);
  });
});
