import { isDomainError, OPEN_REQUESTS_MAX, type JsonObject, type SessionLogEvent } from '@runplane/contracts';
import { approvalProjection } from './approval';
import { RepeatedEvent, type FoldContext, type Projection } from './projection';
import { userInputProjection } from './user-input';

// Approvals and input requests as folds: what the guards refuse before an event enters the log, and what any log makes of them.

const CONTEXT: FoldContext = {
  tenantId: 'acme',
  sessionId: 's',
  header: {},
  head: {
    lastSequence: -1,
    snapshot: null,
    driverState: 'idle',
    needsRecovery: false,
    windowId: null,
    firstWindowId: null,
    openSubmissions: 0,
    openTurnSubmissions: 0,
  },
};
const NOW = 1_700_000_000_000;

interface Kind {
  readonly projection: Projection<{ requests: ReadonlyMap<string, { state: string; revision: number }> }>;
  readonly asked: (data?: JsonObject) => [string, JsonObject];
  readonly resolved: (state: string, data?: JsonObject) => [string, JsonObject];
  /** The row that a load would give. */
  readonly row: JsonObject;
  readonly yes: string;
  readonly no: string;
  readonly codes: { notFound: string; conflict: string; notPending: string; expired: string };
}

const row = { id: 'a', state: 'pending', revision: 0, contentHash: 'h', requestedSequence: 3, resolvedSequence: null, expiresInMs: 5, actor: null, reason: null }; // prettier-ignore

const KINDS: Record<string, Kind> = {
  approval: {
    projection: approvalProjection,
    asked: (data) => ['approval/requested', { approval_id: 'a', tool_name: 'bash', ...data }],
    resolved: (resolution, data) => ['approval/resolved', { approval_id: 'a', resolution, ...data }],
    row,
    yes: 'approved',
    no: 'rejected',
    codes: {
      notFound: 'approval_not_found',
      conflict: 'approval_conflict',
      notPending: 'approval_not_pending',
      expired: 'approval_expired',
    },
  },
  'input request': {
    projection: userInputProjection,
    asked: (data) => ['user-input/requested', { request_id: 'a', prompt: 'why?', expires_at_ms: NOW + 60_000, ...data }],
    resolved: (outcome, data) => ['user-input/resolved', { request_id: 'a', outcome, ...data }],
    row: { ...row, schema: {}, value: null },
    yes: 'answered',
    no: 'declined',
    codes: {
      notFound: 'input_request_not_found',
      conflict: 'input_request_conflict',
      notPending: 'input_request_not_pending',
      expired: 'input_request_expired',
    },
  },
};

type Step = readonly [string, JsonObject];

const eventOf = ([type, data]: Step, sequence: number): SessionLogEvent => ({
  sequence,
  type,
  time: NOW + sequence * 1_000,
  turnId: 't1',
  stepId: null,
  data,
  runId: null,
  commandId: null,
});

/** Asks the guard before each event, as an append does; the state after the last, or the first refusal. */
function append({ projection }: Kind, loaded: unknown, steps: readonly Step[]) {
  let state = projection.initial(loaded, CONTEXT);
  for (const [at, step] of steps.entries()) {
    const event = eventOf(step, at + 10);
    try {
      projection.guard?.(state, event);
    } catch (error) {
      if (error instanceof RepeatedEvent) return `repeats ${error.sequence}`;
      if (isDomainError(error)) return error.code;
      throw error;
    }
    state = projection.apply(state, event);
  }
  return state.requests.get('a')?.state;
}

const fold = ({ projection }: Kind, steps: readonly Step[]) =>
  steps.reduce((state, step, at) => projection.apply(state, eventOf(step, at)), projection.initial(undefined, CONTEXT));

describe.each(Object.entries(KINDS))('an %s', (_, kind) => {
  const { asked, resolved, yes, no, codes } = kind;
  const nobody = { open: 0, rows: [] };
  const there = (over: JsonObject = {}) => ({ open: 1, rows: [{ ...kind.row, ...over }] });

  test.each<[string, unknown, Step[], string]>([
    ['is pending once it is asked', nobody, [asked()], 'pending'],
    ['is decided once', nobody, [asked(), resolved(yes)], yes],
    ['is refused by a no', nobody, [asked(), resolved(no)], no],
    ['is asked again in the same words: nothing is added', nobody, [asked(), asked()], 'repeats 10'],
    ['is asked again in the same words after its end: nothing is added', nobody, [asked(), resolved(no), asked()], 'repeats 10'],
    ['is asked again in other words', nobody, [asked(), asked({ turn_id: 't2' })], codes.conflict],
    ['cannot be decided before it is asked', nobody, [resolved(yes)], codes.notFound],
    ['is decided the same way again: nothing is added', nobody, [asked(), resolved(yes), resolved(yes)], 'repeats 11'],
    ['keeps the first decision', nobody, [asked(), resolved(yes), resolved(no)], codes.notPending],
    ['keeps the first decider', nobody, [asked(), resolved(yes, { reason: 'a' }), resolved(yes, { reason: 'b' })], codes.notPending],
    ['is decided at the revision that was looked at', nobody, [asked(), resolved(yes, { expected_revision: 1 })], 'decision_outdated'],
    ['lives before its end', there(), [resolved(yes)], yes],
    ['cannot be decided at its end', there({ expiresInMs: 0 }), [resolved(yes)], codes.expired],
    ['cannot be refused behind its end', there({ expiresInMs: -5 }), [resolved(no)], codes.expired],
    ['expires at its end', there({ expiresInMs: 0 }), [resolved('expired')], 'expired'],
    ['does not expire before', there({ expiresInMs: 1 }), [resolved('expired')], 'invalid_request'],
    ['is cancelled at any time', there({ expiresInMs: -5 }), [resolved('cancelled')], 'cancelled'],
    ['is cancelled before its end', there(), [resolved('cancelled')], 'cancelled'],
    ['stays expired', there({ state: 'expired', revision: 1, resolvedSequence: 4 }), [resolved(yes)], codes.notPending],
    ['is one of a bounded number', { open: OPEN_REQUESTS_MAX, rows: [] }, [asked()], 'too_many_open_requests'],
    ['is not one more when it is there', { open: OPEN_REQUESTS_MAX, rows: [kind.row] }, [asked()], codes.conflict],
  ])('%s', (_name, loaded, steps, expected) => {
    expect(append(kind, loaded, steps)).toBe(expected);
  });

  const stringly = kind.asked()[0].startsWith('approval') ? 'approval_id' : 'request_id';

  test.each<[string, Step[], string | undefined]>([
    ['a resolution of nothing', [resolved(yes)], undefined],
    ['a second request', [asked(), resolved(yes), asked({ reason: 'again', prompt: 'again' })], yes],
    ['a second resolution', [asked(), resolved(no), resolved(yes)], no],
    ['a resolution of another revision', [asked(), resolved(yes, { expected_revision: 3 })], 'pending'],
    ['a resolution that nobody knows', [asked(), resolved('pending')], no],
    ['a resolution that is no word', [asked(), resolved(7 as never)], no],
    ['an id that is none', [asked({ [stringly]: 'a\u0000' }), asked({ [stringly]: 7 })], undefined],
    ['wrong types everywhere', [asked({ turn_id: 7, tool_name: { a: 1 }, prompt: [], reason: false, timeout_seconds: 'x', expires_at_ms: {} })], 'pending'], // prettier-ignore
    ['times beyond all bounds', [asked({ timeout_seconds: 1e300, expires_at_ms: Number.MAX_SAFE_INTEGER })], 'pending'],
    ['texts that no column takes', [asked({ tool_name: 'a\u0000\ud800', prompt: 'a\u0000' })], 'pending'],
    ['the other case style', [asked({ [stringly === 'approval_id' ? 'approvalId' : 'requestId']: 'b' })], 'pending'],
  ])('is a fold of any log: %s', (_name, steps, expected) => {
    const state = fold(kind, steps);

    expect(state.requests.get('a')?.state).toBe(expected);
    expect(() => kind.projection.writes(state).map(({ values }) => values)).not.toThrow();
    expect(
      kind.projection
        .writes(state)
        .flatMap(({ values }) => JSON.stringify(values))
        .join(),
    ).not.toMatch(/\\u0000|NaN|[+]\d{6}-/);
  });
});

test('an approval ends with its timeout, 300 seconds unless it says otherwise, in whole milliseconds', () => {
  const expiresAt = (data: JsonObject) => {
    const [, requested] = KINDS['approval']!.asked(data);
    const state = approvalProjection.apply(approvalProjection.initial(undefined, CONTEXT), {
      ...eventOf(['approval/requested', requested], 0),
      time: NOW,
    });
    return state.requests.get('a')?.asked?.expiresAt;
  };

  expect(expiresAt({})).toBe('2023-11-14T22:18:20.000Z');
  expect(expiresAt({ timeout_seconds: 1.2349 })).toBe('2023-11-14T22:13:21.234Z');
  expect(expiresAt({ timeout_seconds: -5 })).toBe('2023-11-14T22:13:20.000Z');
  expect(expiresAt({ timeout_seconds: 1e300 })).toBe('9999-12-31T23:59:59.999Z');
});

test('an answer fits its schema, also in the batch that asks', () => {
  const kind = KINDS['input request']!;
  const schema = { input_schema: { type: 'object', required: ['size'] } };
  const loaded = { open: 1, rows: [{ ...kind.row, schema: schema.input_schema }] };

  expect(append(kind, { open: 0, rows: [] }, [kind.asked({ input_schema: { type: 'nonsense' } })])).toBe('invalid_input_schema');
  expect(append(kind, { open: 0, rows: [] }, [kind.asked(schema), kind.resolved('answered', { value: {} })])).toBe('invalid_input_value');
  expect(append(kind, loaded, [kind.resolved('answered', { value: { size: 1 } })])).toBe('answered');
  expect(append(kind, loaded, [kind.resolved('answered')])).toBe('invalid_input_value');
  expect(append(kind, loaded, [kind.resolved('declined')])).toBe('declined');
});
