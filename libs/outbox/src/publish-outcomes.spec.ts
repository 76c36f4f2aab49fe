import { inKeyOrder, keyOf, SENT, SKIPPED } from './publish-outcomes';
import { failed, FAILURE_REASONS, REFUSALS, refused, type PublishOutcome, type PublishRecord, type RefusalReason } from './publisher';

const record = (partitionKey: string, topic = 'events'): PublishRecord => ({
  place: { tx: 1n, position: 1n },
  topic,
  partitionKey,
  stream: 'session',
  streamId: 's',
  sequence: 0,
  eventId: 'evt_1',
  type: 'turn/start',
  tenantId: 'acme',
  projectId: null,
  sessionId: 's',
  runId: null,
  commandId: null,
  data: '{}',
  time: '2026-01-01T00:00:00.000Z',
});
const REFUSED = refused('too_large', 'too large');
const FAILED = failed('unavailable', 'no broker');

describe('of a key a prefix is sent, one record at most is refused or failed, the rest is skipped', () => {
  it.each<[string, string, PublishOutcome[], PublishOutcome[]]>([
    ['all sent', 'aab', [SENT, SENT, SENT], [SENT, SENT, SENT]],
    ['nothing at all', '', [], []],
    ['behind a refused one', 'aab', [REFUSED, FAILED, SENT], [REFUSED, SKIPPED, SENT]],
    ['behind a failed one', 'abab', [SENT, FAILED, SENT, FAILED], [SENT, FAILED, SENT, SKIPPED]],
    ['behind a skipped one', 'aa', [SKIPPED, SENT], [SKIPPED, SKIPPED]],
    ['a later record that got through is sent again', 'aaa', [SENT, REFUSED, SENT], [SENT, REFUSED, SKIPPED]],
  ])('%s', (_name, keys, raw, promised) => {
    expect(
      inKeyOrder(
        [...keys].map((key) => record(key)),
        raw,
      ),
    ).toEqual(promised);
  });

  it('keys of two topics, and of two tenants, are two', () => {
    expect(inKeyOrder([record('a', 'x'), record('a', 'y')], [REFUSED, SENT])).toEqual([REFUSED, SENT]);
    expect(keyOf(record('acme/s'))).not.toBe(keyOf(record('umbrella/s')));
    expect(keyOf({ topic: 'a","b', partitionKey: 'c' })).not.toBe(keyOf({ topic: 'a', partitionKey: 'b","c' }));
  });

  it('an answer too few is a fault of the publisher, and told', () => {
    expect(() => inKeyOrder([record('a')], [])).toThrow('0 outcomes for 1 records');
  });
});

it('only what time cannot heal is final', () => {
  const final = (Object.keys(REFUSALS) as RefusalReason[]).filter((reason) => REFUSALS[reason].final);

  expect(final).toEqual(['invalid', 'invalid_topic']);
  expect(refused('too_large', 'x', true)).toEqual({ kind: 'refused', reason: 'too_large', final: true, error: 'x' });
  expect(FAILURE_REASONS.map((reason) => failed(reason, 'x').kind)).toEqual(FAILURE_REASONS.map(() => 'failed'));
});
