import type { PublishOutcome, PublishRecord } from '../publisher';
import { failed, refused } from '../publisher';
import { SENT, SKIPPED } from '../publish-outcomes';
import { settleShard, type DueKey, type Page, type ShardPass } from './pass-decisions';
import { SinkLimits } from './sink';

const limits = SinkLimits.parse({});
const place = (position: number) => ({ tx: 1n, position: BigInt(position) });
const record = (key: string, position: number): PublishRecord => ({
  place: place(position),
  topic: 't',
  partitionKey: key,
  stream: 'session',
  streamId: key,
  sequence: position,
  eventId: `e${position}`,
  type: 'x',
  tenantId: 'a',
  projectId: null,
  sessionId: key,
  runId: null,
  commandId: null,
  data: '{}',
  time: '2026-01-01T00:00:00.000Z',
});
const nothing: Page = { items: [], end: undefined, more: false };
const REFUSED = refused('too_large', 'large');
const FINAL = refused('invalid', 'bad');
const FAILED = failed('unavailable', 'gone');
const STOPPED = failed('stopped', 'stopped');

/** Fresh events at places 1, 2, 3 …: `A` of a key that is blocked, any other letter of its own. */
function settleFresh(keys: string, answers: readonly (PublishOutcome | undefined)[], over: Partial<ShardPass> = {}) {
  const items = [...keys].map((key, n) => ({ key, place: place(n + 1), record: key === 'A' ? undefined : record(key, n + 1) }));
  const outcomes = new Map<PublishRecord, PublishOutcome>();
  for (const [n, { record: each }] of items.entries()) {
    const answer = answers[n];
    if (each !== undefined && answer !== undefined) outcomes.set(each, answer);
  }
  const fresh = { items, end: place(items.length), more: false };
  const pass = { shard: 0, epoch: 1, failures: 0, othersSent: false, keys: [], replaying: false, replay: nothing, fresh, ...over };
  const { cursor, held, blocked, failure, more } = settleShard(pass, outcomes, limits, () => 0);
  return {
    cursor: cursor === undefined ? 0 : Number(cursor.position),
    held: held.map(({ key, place: { position } }) => `${key}${position}`),
    blocked: blocked.map(({ key, attempts, failures, parked }) => `${key} ${attempts}/${failures}${parked ? ' parked' : ''}`),
    failed: failure !== undefined,
    more,
  };
}

const often = { failures: 4, othersSent: true };

test.each([
  [SENT, SKIPPED, true],
  [SKIPPED, SENT, false],
  [SENT, SENT, false],
  [SENT, FAILED, false],
])('of two keys %j and %j: asked again at once: %s', (first, second, more) => {
  expect(settleFresh('ab', [first, second]).more).toBe(more);
});

describe('what is new: the cursor never passes what was neither sent nor held', () => {
  it.each<[string, string, (PublishOutcome | undefined)[], Partial<ShardPass>, Omit<ReturnType<typeof settleFresh>, 'more'>]>([
    ['all sent', 'abc', [SENT, SENT, SENT], {}, { cursor: 3, held: [], blocked: [], failed: false }],
    ['of a blocked key', 'aAb', [SENT, undefined, SENT], {}, { cursor: 3, held: ['A2'], blocked: [], failed: false }],
    ['refused', 'aba', [REFUSED, SENT, SKIPPED], {}, { cursor: 3, held: ['a1', 'a3'], blocked: ['a 1/0'], failed: false }],
    ['refused for good', 'ab', [FINAL, SENT], {}, { cursor: 2, held: ['a1'], blocked: ['a 1/0 parked'], failed: false }],
    ['the sink fails', 'abc', [SENT, FAILED, SENT], {}, { cursor: 1, held: [], blocked: [], failed: true }],
    ['the sink fails at the first', 'ab', [FAILED, SENT], {}, { cursor: 0, held: [], blocked: [], failed: true }],
    ['refused before the sink fails', 'abc', [REFUSED, FAILED, SENT], {}, { cursor: 1, held: ['a1'], blocked: ['a 1/0'], failed: true }],
    ['refused behind a failure: left for the next pass', 'ab', [FAILED, REFUSED], {}, { cursor: 0, held: [], blocked: [], failed: true }],
    [
      'a fifth failure while others go through',
      'aba',
      [FAILED, SENT, SKIPPED],
      often,
      { cursor: 3, held: ['a1', 'a3'], blocked: ['a 0/1'], failed: false },
    ],
    [
      'a fifth failure while nothing goes through',
      'ab',
      [FAILED, FAILED],
      { failures: 9 },
      { cursor: 0, held: [], blocked: [], failed: true },
    ],
    [
      'a fifth failure while another key of the shard goes through',
      'ab',
      [FAILED, SENT],
      { failures: 4 },
      { cursor: 2, held: ['a1'], blocked: ['a 0/1'], failed: false },
    ],
    [
      'a fifth failure while only its own key went through before',
      'aa',
      [SENT, FAILED],
      { failures: 4 },
      { cursor: 1, held: [], blocked: [], failed: true },
    ],
    ['the relay stops', 'ab', [SENT, STOPPED], often, { cursor: 1, held: [], blocked: [], failed: false }],
    ['not tried', 'ab', [undefined, undefined], {}, { cursor: 0, held: [], blocked: [], failed: false }],
  ])('%s', (_name, keys, answers, over, settled) => {
    expect(settleFresh(keys, answers, over)).toMatchObject(settled);
  });
});

/** A due key with events at places 1, 2, 3 …, blocked at 1; `undefined` among the answers is an event that is no more. */
function settleDue(answers: readonly (PublishOutcome | 'gone')[], key: Partial<DueKey> = {}, over: Partial<ShardPass> = {}) {
  const events = answers.map((answer, n) => ({ place: place(n + 1), record: answer === 'gone' ? undefined : record('k', n + 1) }));
  const outcomes = new Map<PublishRecord, PublishOutcome>();
  for (const [n, { record: each }] of events.entries()) if (each !== undefined) outcomes.set(each, answers[n] as PublishOutcome);
  const due: DueKey = { key: 'k', place: place(1), attempts: 3, failures: 0, blockedMs: 10, revision: 7, events, complete: true, ...key };
  const pass = {
    shard: 0,
    epoch: 1,
    failures: 0,
    othersSent: false,
    keys: [due],
    replaying: false,
    replay: nothing,
    fresh: nothing,
    ...over,
  };
  const { released, blocked, freed, failure, more } = settleShard(pass, outcomes, limits, () => 0);
  return {
    released: released.length,
    blocked: blocked.map(({ attempts, failures, parked, revision }) => `${attempts}/${failures}${parked ? ' parked' : ''} ${revision}`),
    freed: freed.length,
    failed: failure !== undefined,
    more,
  };
}
const held: Partial<ShardPass> = { fresh: { items: [{ key: 'k', place: place(9), record: undefined }], end: place(9), more: false } };

describe('what was held: a key is free when all of it was sent and nothing came behind', () => {
  it.each<[string, (PublishOutcome | 'gone')[], Partial<DueKey>, Partial<ShardPass>, ReturnType<typeof settleDue>]>([
    ['all sent', [SENT, SENT], {}, {}, { released: 2, blocked: [], freed: 1, failed: false, more: false }],
    ['an erased event is passed over', ['gone', SENT], {}, {}, { released: 2, blocked: [], freed: 1, failed: false, more: false }],
    ['nothing is held any more', [], {}, {}, { released: 0, blocked: [], freed: 1, failed: false, more: false }],
    ['something came behind', [SENT], {}, held, { released: 1, blocked: ['0/0 7'], freed: 0, failed: false, more: true }],
    [
      'there is more than was read',
      [SENT],
      { complete: false },
      {},
      { released: 1, blocked: ['0/0 7'], freed: 0, failed: false, more: true },
    ],
    ['refused again', [REFUSED, SKIPPED], {}, {}, { released: 0, blocked: ['4/0 7'], freed: 0, failed: false, more: false }],
    [
      'refused for the last time',
      [REFUSED],
      { attempts: 9 },
      {},
      { released: 0, blocked: ['10/0 parked 7'], freed: 0, failed: false, more: false },
    ],
    [
      'refused for too long',
      [REFUSED],
      { blockedMs: 600_000 },
      {},
      { released: 0, blocked: ['4/0 parked 7'], freed: 0, failed: false, more: false },
    ],
    [
      'the next one is refused: it has tries of its own',
      [SENT, REFUSED],
      {},
      {},
      { released: 1, blocked: ['1/0 7'], freed: 0, failed: false, more: false },
    ],
    ['the sink fails: no try counts', [FAILED], {}, {}, { released: 0, blocked: [], freed: 0, failed: true, more: false }],
    [
      'the sink fails at a key that is tried alone',
      [FAILED],
      { failures: 2 },
      {},
      { released: 0, blocked: ['3/3 7'], freed: 0, failed: false, more: false },
    ],
    ['the relay stops', [STOPPED], { failures: 2 }, {}, { released: 0, blocked: [], freed: 0, failed: false, more: false }],
  ])('%s', (_name, answers, key, over, settled) => {
    expect(settleDue(answers, key, over)).toEqual(settled);
  });
});
