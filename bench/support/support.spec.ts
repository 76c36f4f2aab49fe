import { measureInTurns, quantile, timesInTurns, WARM_UP_CALLS, type Contestant } from './measure';
import { expectationLine, isMet, resultsOf, tableOf } from './result';

test('a quantile is the value at its nearest rank', () => {
  const values = [5, 1, 4, 2, 3];
  expect([0, 0.5, 0.99, 1].map((part) => quantile(values, part))).toEqual([1, 3, 5, 5]);
  expect(quantile([], 0.5)).toBeNaN();
});

test('contestants take turns, every call is counted, warm-up included', async () => {
  const turns: string[] = [];
  let done = 0;
  const make = (name: string): Contestant => ({
    name,
    perCall: 10,
    calls: 0,
    callers: [1, 2].map(() => () => {
      done += 1;
      return new Promise((resolve) => setTimeout(resolve, 5));
    }),
  });
  const contestants = [make('a'), make('b')];
  const measured = await measureInTurns(contestants, {
    rounds: 2,
    seconds: 0.1,
    onTurn: (round, { name }) => turns.push(`${round}${name}`),
  });
  expect(turns).toEqual(['1a', '1b', '2a', '2b']);
  expect(contestants.reduce((sum, { calls }) => sum + calls, 0)).toBe(done);
  for (const { perSecond, p50Ms, p99Ms } of measured) {
    expect(perSecond).toBeGreaterThan(0);
    expect(p50Ms).toBeGreaterThan(4);
    expect(p99Ms).toBeGreaterThanOrEqual(p50Ms);
  }
});

test('single calls are timed in turns, after a warm-up', async () => {
  let turns = '';
  const call = (name: string) => () => Promise.resolve((turns += name));
  const times = await timesInTurns([call('a'), call('b')], 3);
  expect(times).toEqual([Array(3).fill(expect.any(Number)), Array(3).fill(expect.any(Number))]);
  expect(turns).toBe(`${'a'.repeat(WARM_UP_CALLS)}${'b'.repeat(WARM_UP_CALLS)}ababab`);
});

test('a ratio is that of the events per second to the floor', () => {
  const contestant = (name: string, perCall: number): Contestant => ({ name, perCall, calls: 0, callers: [() => Promise.resolve()] });
  const measured = [
    { contestant: contestant('floor', 1), perSecond: 1000, p50Ms: 1, p99Ms: 2 },
    { contestant: contestant('ours', 10), perSecond: 2500, p50Ms: 3.00049, p99Ms: 4 },
  ];
  const results = resultsOf(measured, 'floor');
  expect(results).toEqual([
    { case: 'floor', callers: 1, perCall: 1, perSecond: 1000, p50Ms: 1, p99Ms: 2, ratio: 1 },
    { case: 'ours', callers: 1, perCall: 10, perSecond: 2500, p50Ms: 3, p99Ms: 4, ratio: 2.5 },
  ]);
  expect(tableOf(results).split('\n')[0]).toBe('case   callers  perCall  perSecond  p50Ms  p99Ms  ratio');
});

test('an expectation says its bound and whether it is met', () => {
  expect(isMet({ what: 'speed', found: 0.45, atLeast: 0.45 })).toBe(true);
  expect(isMet({ what: 'memory', found: 101, atMost: 100 })).toBe(false);
  expect(expectationLine({ what: 'memory', found: 101, atMost: 100 })).toBe('NOT MET  memory: 101.00, expected at most 100');
});
