import {
  DRIVER_MOVES,
  DRIVER_STATES,
  INBOX_ENTRIES_MAX,
  InboxFull,
  OPEN_REQUESTS_MAX,
  type DriverState,
  type JsonObject,
  type SessionLogEvent,
} from '@runplane/contracts';
import { emptyContext, told, type Told } from '../testing/told';
import { applyToSnapshot, EMPTY_SNAPSHOT, needsRecovery, parseSnapshot, snapshotProjection, type Snapshot } from './snapshot';

const foldOf = (events: readonly SessionLogEvent[], from = EMPTY_SNAPSHOT): Snapshot => events.reduce(applyToSnapshot, from);
const stateOf = (...entries: Told[]): DriverState => foldOf(told(...entries)).driverState;
const asks = (id: string): Told => ['approval/requested', { approval_id: id }];
const answers = (id: string): Told => ['approval/resolved', { approvalId: id }];
const wants = (id: string): Told => ['user-input/requested', { request_id: id }];
const gets = (id: string): Told => ['user-input/resolved', { request_id: id }];
const enqueue = (id: string, more: JsonObject = {}): Told => ['input/enqueued', { input_id: id, ...more }];
const entry = (inputId: string, wakeup = true): JsonObject => ({ inputId, wakeup });

describe('the state of the driver', () => {
  it.each<[DriverState, Told[]]>([
    ['idle', []],
    ['turn_started', ['turn/start t1']],
    ['step_preparing', ['turn/start t1', 'step/start s1']],
    ['model_streaming', ['turn/start t1', 'request/context']],
    ['tool_running', ['turn/start t1', 'tool/call']],
    ['tool_running', ['turn/start t1', 'tool/call', 'tool/result', 'assistant/message', 'custom/thing']],
    ['step_completed', ['turn/start t1', 'step/end']],
    ['attention_required', [['execution/recovery', { attention_required: true }]]],
    ['turn_started', ['turn/start t1', ['execution/recovery', { attention_required: false }]]],
    // One of two approvals is answered: the other still waits.
    ['approval_waiting', ['turn/start t1', asks('a'), asks('b'), answers('a')]],
    ['tool_running', ['turn/start t1', asks('a'), asks('b'), answers('a'), answers('b')]],
    ['input_waiting', ['turn/start t1', wants('r')]],
    ['input_waiting', ['turn/start t1', wants('r'), asks('a'), answers('a')]],
    ['approval_waiting', ['turn/start t1', asks('a'), wants('r')]],
    ['approval_waiting', ['turn/start t1', wants('r'), asks('a'), gets('r')]],
    ['tool_running', ['turn/start t1', wants('r'), gets('r')]],
    ['model_streaming', ['turn/start t1', wants('r'), 'request/context', gets('r')]],
    // Nobody asked for it, or the turn is over: an answer starts no tool.
    ['turn_started', ['turn/start t1', answers('a')]],
    ['idle', ['turn/start t1', asks('a'), 'turn/end t1', answers('a')]],
    ['turn_started', ['turn/start t1', 'turn/end t0']],
    ['idle', ['turn/start t1', 'turn/end t1']],
    ['turn_completed', [enqueue('i'), 'turn/start t1', 'turn/end t1']],
    ['idle', [enqueue('i'), 'turn/start t1', 'turn/end t1', ['input/discarded', { input_id: 'i' }]]],
    ['turn_completed', [enqueue('i'), enqueue('j'), 'turn/start t1', 'turn/end t1', ['input/entered', { input_id: 'i' }]]],
    ['idle', [enqueue('i'), 'turn/start t1', 'turn/end t1', ['agent/inbox/spliced', { index: 0, delete_count: 1 }]]],
  ])('is %s after %j', (state, entries) => {
    expect(stateOf(...entries)).toBe(state);
  });

  it('follows from each state the first row of the table that holds, and stays for everything else', () => {
    for (const driverState of DRIVER_STATES) {
      const from: Snapshot = { ...EMPTY_SNAPSHOT, driverState };
      for (const { on, to } of DRIVER_MOVES.filter(({ when }) => when.length === 0)) {
        expect(foldOf(told(on), from).driverState).toBe(to);
      }
      for (const type of ['tool/result', 'user/message', 'context/window-started', 'constructor'])
        expect(foldOf(told(type), from)).toBe(from);
    }
  });
});

describe('the inbox', () => {
  const splice = (data: JsonObject): Told => ['agent/inbox/spliced', data];

  it('follows input events until it is spliced, and splices from then on', () => {
    const a = told(enqueue('a', { target: 'next-turn' }), enqueue('b'));
    expect(foldOf(a).inbox).toEqual({ nextTurn: [entry('a')], nextStep: [entry('b')] });

    const c = splice({ target: 'next-turn', index: 0, delete_count: 1, inserted: [{ input_id: 'c', wakeup: false }] });
    const spliced = foldOf(told(c), foldOf(a));
    expect(spliced).toMatchObject({ inbox: { nextTurn: [entry('c', false)], nextStep: [entry('b')] }, hasInboxSplices: true });

    const later = foldOf(told(enqueue('d'), splice({ target: 'next-turn', index: 9 })), spliced);
    expect(later).toMatchObject({ inbox: spliced.inbox, hasInboxSplices: true, anomalyCount: 1 });
  });

  it.each<[string, JsonObject]>([
    ['beyond the queue', { index: 1 }],
    ['before it', { index: -1 }],
    ['for more than there is', { index: 0, delete_count: 1 }],
    ['of text', { index: '0' }],
    ['without a list', { inserted: { input_id: 'a' } }],
    ['of other things than entries', { inserted: ['a'] }],
  ])('a malformed splice %s is told, and input events still count', (_, data) => {
    const snapshot = foldOf(told(splice(data), enqueue('a')));
    expect(snapshot).toMatchObject({ inbox: { nextStep: [entry('a')] }, hasInboxSplices: false, anomalyCount: 1 });
    expect(snapshot.anomalies).toMatchObject([{ sequence: 0, type: 'agent/inbox/spliced' }]);
  });

  it('an inserted entry without an id keeps its place, so that later indexes fit', () => {
    const snapshot = foldOf(told(splice({ inserted: [{ input_id: 'a' }, {}, { inputId: 'c' }] }), splice({ index: 2, delete_count: 1 })));
    expect(snapshot.inbox.nextStep).toEqual([entry('a'), entry('')]);
    expect(snapshot.anomalyCount).toBe(1);
  });

  it('loses an entered input from both queues', () => {
    const snapshot = foldOf(told(enqueue('a'), enqueue('a', { target: 'next-turn' }), enqueue('b'), ['input/entered', { input_id: 'a' }]));
    expect(snapshot.inbox).toEqual({ nextTurn: [], nextStep: [entry('b')] });
  });
});

it.each<[boolean, Told[]]>([
  [false, []],
  [true, ['turn/start t1']],
  [false, ['turn/start t1', 'turn/end t1']],
  [true, [enqueue('a')]],
  [false, [enqueue('a', { wakeup: false })]],
  [true, [asks('a')]],
  [true, [wants('r')]],
  [false, [asks('a'), answers('a')]],
])('a cold start has to look at it: %s, after %j', (expected, entries) => {
  expect(needsRecovery(foldOf(told(...entries)))).toBe(expected);
});

it('is read back as it was stored, and whatever is malformed as new', () => {
  const snapshot = foldOf(told('turn/start t1', asks('a'), wants('r'), enqueue('i'), 'turn/end t0'));
  expect(parseSnapshot(JSON.parse(JSON.stringify(snapshot)) as JsonObject)).toEqual(snapshot);
  const broken = { driverState: 'x', inbox: [], pendingApprovalIds: { a: 1 }, anomalies: [1], activeTurnId: 7 };
  expect(parseSnapshot(broken)).toEqual(EMPTY_SNAPSHOT);
});

it('keeps the last anomalies, and their number', () => {
  const snapshot = foldOf(told(...Array.from({ length: 30 }, (_, i): Told => `turn/end t${i}`)));
  expect(snapshot.anomalyCount).toBe(30);
  expect(snapshot.anomalies.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 20 }, (_, i) => i + 10));
});

it('changes the head only where the log has changed something', () => {
  const asked = told(asks('a')).reduce(
    (state, event) => snapshotProjection.apply(state, event),
    snapshotProjection.initial(undefined, emptyContext),
  );
  const change = snapshotProjection.head?.(asked);
  expect(change).toMatchObject({ driverState: 'approval_waiting', needsRecovery: true, snapshot: { pendingApprovalIds: ['a'] } });

  const again = snapshotProjection.initial(undefined, { ...emptyContext, head: { ...emptyContext.head, ...change } });
  expect(snapshotProjection.head?.(again)).toEqual({});
});

test('an inbox holds so many and no more; what takes some out always comes in', () => {
  const entries = (n: number) => Array.from({ length: n }, (_, i) => ({ inputId: `i${i}`, wakeup: true }));
  const state = (n: number) => ({ ...snapshotProjection.initial(undefined, emptyContext), snapshot: { ...EMPTY_SNAPSHOT, inbox: { nextTurn: entries(n), nextStep: [] } } }); // prettier-ignore
  const ask =
    (n: number, ...entry: [string, JsonObject]) =>
    () =>
      told(entry).forEach((event) => snapshotProjection.guard?.(state(n), event));
  expect(ask(INBOX_ENTRIES_MAX - 1, 'input/enqueued', { input_id: 'x' })).not.toThrow();
  expect(ask(INBOX_ENTRIES_MAX, 'input/enqueued', { input_id: 'x' })).toThrow(InboxFull);
  expect(ask(INBOX_ENTRIES_MAX, 'agent/inbox/spliced', { target: 'next-turn', inserted: [{ input_id: 'x' }] })).toThrow(InboxFull);
  expect(ask(INBOX_ENTRIES_MAX + 5, 'agent/inbox/spliced', { target: 'next-turn', index: 0, delete_count: 2, inserted: [{ input_id: 'x' }] })).not.toThrow(); // prettier-ignore
  expect(ask(INBOX_ENTRIES_MAX + 5, 'input/entered', { input_id: 'i1' })).not.toThrow();
});

test('a log that no guard has seen, with more inputs than an inbox holds or more questions than may be open, has the first of them, and what is too much is told', () => {
  const many = foldOf(told(...Array.from({ length: INBOX_ENTRIES_MAX + 2 }, (_, i) => enqueue(`i${i}`))));
  expect(many).toMatchObject({ anomalyCount: 2, anomalies: [{ what: 'the inbox is full' }, { what: 'the inbox is full' }] });
  expect(many.inbox.nextStep).toHaveLength(INBOX_ENTRIES_MAX);

  const asked = foldOf(told(...Array.from({ length: OPEN_REQUESTS_MAX + 1 }, (_, i) => asks(`a${i}`))));
  expect(asked.pendingApprovalIds).toHaveLength(OPEN_REQUESTS_MAX);
  expect(asked.anomalies).toMatchObject([{ what: 'too many requests are open' }]);

  // As many as an event can carry: more than a call of a function takes arguments.
  const [splice] = told(['agent/inbox/spliced', { inserted: Array.from({ length: 349_000 }, () => ({})) }]);
  if (splice === undefined) throw new Error('nothing was told');
  expect(foldOf([splice])).toMatchObject({ inbox: EMPTY_SNAPSHOT.inbox, hasInboxSplices: false, anomalyCount: 1 });
  expect(() => snapshotProjection.guard?.(snapshotProjection.initial(undefined, emptyContext), splice)).toThrow(InboxFull);
});
