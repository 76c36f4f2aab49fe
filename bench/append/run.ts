import { compareAppends, type Contender } from '../support/append-case';
import { resultsOf, type Expectation, type Result } from '../support/result';
import { describeMachine, startBenchStore, type BenchStore } from '../support/store';
import { prepareFloor } from './floor';
import { prepareHand } from './hand';
import { prepareOriginal } from './original';
import { prepareCoalesced, prepareOurs, prepareSingle } from './ours';

export const APPEND_CASES: readonly Contender[] = [
  { name: 'floor', perCall: 1, prepare: prepareFloor },
  { name: 'ours', perCall: 1, prepare: prepareOurs },
  { name: 'ours', perCall: 10, prepare: prepareOurs },
  { name: 'ours', perCall: 100, prepare: prepareOurs },
  { name: 'single', perCall: 1, prepare: prepareSingle },
  { name: 'coalesced', perCall: 1, prepare: prepareCoalesced },
  { name: 'hand', perCall: 1, prepare: prepareHand },
  { name: 'original', perCall: 1, prepare: prepareOriginal },
];

export interface AppendBench {
  readonly callers: readonly number[];
  /** Only cases of these names; the floor always runs. Without it more than 16 callers are for `coalesced` alone: the others' pools are of one connection per caller. */
  readonly cases?: readonly string[] | undefined;
  readonly rounds: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
}

/** Appends events in four ways to one database and compares them. Throws when a case has not written what it says it has. */
export async function runAppendBench(bench: AppendBench): Promise<Result[]> {
  // A pool of one connection per caller for each case, open at the same time.
  const store = await startBenchStore({ max_connections: String(100 + APPEND_CASES.length * Math.max(...bench.callers)) });
  try {
    bench.say(await describeMachine(store.admin));
    const results: Result[] = [];
    for (const callers of bench.callers) results.push(...(await compare(store, callers, bench)));
    return results;
  } finally {
    await store.stop();
  }
}

async function compare({ url, admin }: BenchStore, callers: number, { cases, rounds, seconds, say }: AppendBench): Promise<Result[]> {
  const wanted = cases ?? (callers > 16 ? ['coalesced'] : undefined);
  const contenders = APPEND_CASES.filter(({ name }) => name === 'floor' || (wanted?.includes(name) ?? true));
  const measured = await compareAppends({ url, admin, callers }, contenders, {
    rounds,
    seconds,
    onTurn: (round, { name, perCall }) => {
      say(`round ${round} of ${rounds}, ${callers} callers: ${name}, ${perCall} a call`);
    },
  });
  return resultsOf(measured, 'floor');
}

/** What the project promises of appends; of cases that have run. */
export function appendExpectations(results: readonly Result[]): Expectation[] {
  const rate = (name: string, { callers = 16, perCall = 1 } = {}): number =>
    results.find((result) => result.case === name && result.callers === callers && result.perCall === perCall)?.perSecond ?? Number.NaN;
  const expectations = [
    { what: '16 callers, one event a call, against the floor', atLeast: 0.45, found: rate('ours') / rate('floor') },
    { what: '16 callers, one event a call, against a transaction by hand', atLeast: 1.8, found: rate('ours') / rate('hand') },
    { what: '16 callers, one event a call, against the original', atLeast: 5, found: rate('ours') / rate('original') },
    { what: "16 callers, ten events a call, against the floor's events", atLeast: 2, found: rate('ours', { perCall: 10 }) / rate('floor') },
    { what: '16 callers on the pool of an API process, against the floor', atLeast: 0.7, found: rate('coalesced') / rate('floor') },
    {
      what: '64 callers on the pool of an API process, against the floor',
      atLeast: 0.75,
      found: rate('coalesced', { callers: 64 }) / rate('floor', { callers: 64 }),
    },
  ];
  return expectations.filter(({ found }) => !Number.isNaN(found));
}
