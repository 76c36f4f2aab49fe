import { OPEN_SUBMISSIONS_MAX, type JsonObject, type SessionLogEvent } from '@runplane/contracts';
import { submissionProjection as projection, type Submissions } from './submission';

const head = {
  lastSequence: -1,
  snapshot: null,
  driverState: 'idle' as const,
  needsRecovery: false,
  windowId: null,
  firstWindowId: null,
  openSubmissions: 0,
  openTurnSubmissions: 0,
};
const context = { tenantId: 'acme', sessionId: 's', header: {}, head };
const empty = (over: Partial<typeof head> = {}): Submissions => projection.initial([], { ...context, head: { ...head, ...over } });

let sequence = 0;
const event = (what: string, data: JsonObject): SessionLogEvent => ({
  sequence: (sequence += 1),
  type: `submission/${what}`,
  time: 1_700_000_000_000,
  turnId: null,
  stepId: null,
  data,
  runId: null,
  commandId: null,
});
const accepted = (id: string, over: JsonObject = {}) =>
  event('accepted', { operation_id: id, submission_id: `sub-${id}`, kind: 'turn', ...over });
const fold = (state: Submissions, ...events: SessionLogEvent[]): Submissions => events.reduce(projection.apply, state);
const refusalOf = (state: Submissions, next: SessionLogEvent): string | undefined => {
  try {
    projection.guard?.(state, next);
    return undefined;
  } catch (error) {
    return (error as { code: string }).code;
  }
};

const pending = fold(empty(), accepted('a'));
const completed = fold(pending, event('completed', { operation_id: 'a' }));
const failed = fold(pending, event('failed', { operation_id: 'a', error: 'no model' }));

describe('a submission', () => {
  test.each([
    ['is accepted once', empty(), accepted('a'), undefined],
    ['is not accepted twice', pending, accepted('a'), 'submission_exists'],
    ['is not accepted again after its end', completed, accepted('a'), 'submission_exists'],
    ['has a submission id of its own', pending, accepted('b', { submission_id: 'sub-a' }), 'submission_exists'],
    ['ends', pending, event('completed', { operation_id: 'a' }), undefined],
    ['ends once', completed, event('completed', { operation_id: 'a' }), 'submission_closed'],
    ['does not end in two ways', completed, event('failed', { operation_id: 'a' }), 'submission_closed'],
    ['that is not there does not end', pending, event('failed', { operation_id: 'b' }), 'submission_not_found'],
    ['that failed is queued again', failed, event('requeued', { operation_id: 'a' }), undefined],
    ['that waits is not queued again', pending, event('requeued', { operation_id: 'a' }), 'submission_closed'],
    ['that is completed is not queued again', completed, event('requeued', { operation_id: 'a' }), 'submission_closed'],
    ['waits for room', empty({ openSubmissions: OPEN_SUBMISSIONS_MAX }), accepted('a'), 'submission_queue_full'],
    ['takes the last place', empty({ openSubmissions: OPEN_SUBMISSIONS_MAX - 1 }), accepted('a'), undefined],
  ])('%s', (_name, state, next, refusal) => {
    expect(refusalOf(state, next)).toBe(refusal);
  });

  test('is known by either spelling of its fields, and keeps what it was sent', () => {
    const state = fold(
      empty(),
      event('accepted', { operationId: 'a', submissionId: 'x', kind: 'note', payload: [1, null], source: { b: 1, a: 2 } }),
    );
    expect(state.known.get('a')).toMatchObject({
      submissionId: 'x',
      kind: 'note',
      state: 'pending',
      accepted: { payloadText: '[1,null]', sourceText: '{"b":1,"a":2}', expectedRevision: null },
    });
  });

  test('moves the counters, turns apart', () => {
    const state = fold(
      empty({ openSubmissions: 3, openTurnSubmissions: 1 }),
      accepted('a'),
      accepted('b', { kind: 'note' }),
      accepted('c', { kind: 'user-input' }),
    );
    expect(projection.head?.(state)).toEqual({ openSubmissions: 6, openTurnSubmissions: 3 });
    expect(projection.head?.(fold(state, event('failed', { operation_id: 'c' }), event('completed', { operation_id: 'b' })))).toEqual({
      openSubmissions: 4,
      openTurnSubmissions: 2,
    });
  });

  test('goes behind all others when it is queued again, and keeps what it failed with', () => {
    const again = event('requeued', { operation_id: 'a' });
    const state = fold(failed, accepted('b'), again);
    expect(state.known.get('a')).toMatchObject({ state: 'pending', place: again.sequence, ended: null, lastError: 'no model' });
    expect(state.open).toBe(2);
  });
});

test('a log that no guard has seen folds without an error', () => {
  const odd: JsonObject[] = [
    {},
    { operation_id: 7 },
    { operation_id: 'a' },
    { operation_id: 'a', submission_id: 'x', kind: null, source: 'x', expected_revision: 1.5 },
  ];
  const events = ['accepted', 'completed', 'failed', 'requeued'].flatMap((what) => odd.map((data) => event(what, data)));
  const state = fold(empty(), ...events, ...events);
  expect(state.open).toBe([...state.known.values()].filter((each) => each.state === 'pending').length);
});
