import { batchesFor, CallQueue, type QueuedCall } from './call-queue';

interface Call extends QueuedCall {
  readonly name: string;
}
const WIDE = { callsMax: 100, bytesMax: 1_000 };

/** `a1` is a call of lane a; `a1!` is one of those of which a batch takes one per lane, `a1.` the last of its lane in a batch; `a1:5` has five rows and bytes. */
function call(text: string): Call {
  const [, name = '', mark, size] = /^(\w+)([!.])?(?::(\d+))?$/.exec(text) ?? [];
  return {
    name,
    lane: name.charAt(0),
    single: mark === '!' ? '1' : undefined,
    last: mark === '.',
    rows: Number(size ?? 1),
    bytes: Number(size ?? 1),
  };
}
const calls = (texts: string): Call[] => texts.split(' ').filter(Boolean).map(call);
const names = (found: readonly Call[]): string => found.map(({ name }) => name).join(' ');

function queueOf(texts: string, batch: { callsMax?: number; rowsMax?: number; bytesMax?: number } = {}): CallQueue<Call> {
  const queue = new CallQueue<Call>(WIDE, { callsMax: 10, rowsMax: 20, bytesMax: 20, ...batch });
  for (const each of calls(texts)) queue.add(each);
  return queue;
}

test.each([
  [0, 1],
  [1, 1],
  [31, 1],
  [32, 2],
  [10_000, 2],
])('%i rows are worth %i batches at a time', (rows, batches) => {
  expect(batchesFor(rows)).toBe(batches);
});

describe('a batch', () => {
  it.each([
    ['takes every lane once, each in order', 'a1 b1 a2 c1', {}, 'a1 a2 b1 c1'],
    ['takes one of those calls of a lane that must not share it, and nothing behind', 'a1! a2! a3 b1!', {}, 'a1 b1'],
    ['takes nothing of a lane behind a call that may need another look', 'a1 a2. a3 b1', {}, 'a1 a2 b1'],
    ['takes what stands before and between them', 'a1 a2! a3 a4! b1', {}, 'a1 a2 a3 b1'],
    ['ends at its number of calls', 'a1 b1 c1 d1', { callsMax: 3 }, 'a1 b1 c1'],
    ['ends at its rows', 'a1:2 b1:2 c1:2', { rowsMax: 5 }, 'a1 b1'],
    ['ends at its bytes', 'a1:2 b1:2 c1:2', { bytesMax: 4 }, 'a1 b1'],
    ['holds one call that is larger than it', 'a1:50 b1', {}, 'a1'],
    ['is not filled with small calls that came later than a large one', 'a1 b1:20 c1', {}, 'a1'],
  ])('%s', (_, texts, batch, taken) => {
    expect(names(queueOf(texts, batch).takeBatch(10))).toBe(taken);
  });

  it('is no larger than its share', () => {
    expect(names(queueOf('a1 b1 c1').takeBatch(2))).toBe('a1 b1');
  });
});

it('takes nothing of a lane while a call of it is under way', () => {
  const queue = queueOf('a1 b1');
  expect(names(queue.takeBatch(10))).toBe('a1 b1');
  for (const each of calls('a2 c1')) queue.add(each);
  expect(names(queue.takeBatch(10))).toBe('c1');
  expect(queue.hasBatch).toBe(false);
  queue.end('a');
  expect(names(queue.takeBatch(10))).toBe('a2');
});

it('takes nothing of a lane whose call has begun without it', () => {
  const queue = queueOf('');
  queue.begin(call('a1'));
  queue.add(call('a2'));
  expect(queue.hasBatch).toBe(false);
  queue.end('a');
  expect(queue.hasBatch).toBe(true);
});

it('puts calls that come back to the head of their lane and of the queue', () => {
  const queue = queueOf('a1 a2!');
  const taken = queue.takeBatch(10);
  for (const each of calls('b1 a3')) queue.add(each);
  queue.end('a', taken, { busy: true });
  expect(names(queue.takeBatch(10))).toBe('a1 a2 a3 b1');
});

it('lets a lane that was busy twice go alone, call by call until one got through', () => {
  const queue = queueOf('a1 a2');
  for (const tries of [1, 2]) {
    expect(queue.hasAlone).toBe(false);
    const taken = queue.takeBatch(10);
    expect([tries, names(taken)]).toEqual([tries, 'a1 a2']);
    queue.end('a', taken, { busy: true });
  }
  expect([queue.hasBatch, queue.hasAlone]).toEqual([false, true]);
  expect(names([queue.takeAlone()])).toBe('a1');
  expect(queue.hasAlone).toBe(false);
  queue.end('a');
  expect(names(queue.takeBatch(10))).toBe('a2');
});

it('has room for so many calls and bytes, and always for one', () => {
  const queue = new CallQueue<Call>({ callsMax: 2, bytesMax: 10 }, { callsMax: 10, rowsMax: 10, bytesMax: 10 });
  expect(calls('a1:50 b1').map((each) => queue.add(each))).toEqual([true, false]);
  queue.takeBatch(10);
  expect(calls('b2:5 c1:6 d1:5 e1:0').map((each) => queue.add(each))).toEqual([true, false, true, false]);
  expect([queue.calls, queue.rows, queue.bytes]).toEqual([2, 10, 10]);
});

it('gives the first calls of a lane back to whoever withdraws them', () => {
  const queue = queueOf('a1 a2 a3 b1');
  expect(queue.callsOf('a')).toBe(3);
  expect(names(queue.withdraw('a', 2))).toBe('a1 a2');
  expect(names(queue.withdraw('c', 1))).toBe('');
  expect([queue.calls, names(queue.takeBatch(10))]).toEqual([2, 'a3 b1']);
});

it('gives a lane that waits for its turn alone one more try together, and no other one', () => {
  const queue = queueOf('a1 b1');
  for (let tried = 0; tried < 2; tried += 1) queue.end('a', queue.takeBatch(1), { busy: true });
  expect([names(queue.listAlone()), queue.hasAlone]).toEqual(['a1', true]);

  for (const lane of ['a', 'b', 'nobody']) queue.tryTogether(lane);

  expect([names(queue.listAlone()), queue.hasAlone, names(queue.takeBatch(10))]).toEqual(['', false, 'a1 b1']);
  queue.end('a', calls('a1'), { busy: true });
  expect(queue.hasAlone).toBe(true);
});
