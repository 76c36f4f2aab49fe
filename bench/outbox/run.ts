import type { Db } from '@runplane/database';
import { doorOfRuns } from '../append/ours';
import { doorOfWriters } from '../session-append/ours';
import { assertWritten, type AppendCase, type CaseSetting } from '../support/append-case';
import { quantile, type Contestant } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import { cuttingOutbox } from './cut-outbox';

type Prepare = (setting: CaseSetting, perCall: number) => Promise<AppendCase>;

interface Pair {
  readonly name: string;
  readonly perCall: number;
  /** Whose calls go out together; the time is that of all of them. */
  readonly callers: number;
  /** The case on a handle that the wrapper makes of the usual one. */
  readonly on: (wrap: (db: Db) => Db) => Prepare;
}

const runs: Pair['on'] = (wrap) => doorOfRuns(() => ({}), wrap);
const writers: Pair['on'] = (wrap) => doorOfWriters(wrap);

export const OUTBOX_PAIRS: readonly Pair[] = [
  { name: 'run', perCall: 1, callers: 1, on: runs },
  { name: 'run', perCall: 20, callers: 1, on: runs },
  { name: 'run', perCall: 1, callers: 16, on: runs },
  { name: 'session', perCall: 1, callers: 1, on: writers },
  { name: 'session', perCall: 20, callers: 1, on: writers },
  { name: 'session', perCall: 1, callers: 16, on: writers },
];

/** Calls of a case in one turn: so few that whatever else the machine does meets both of a pair. */
const TURN_CALLS = 10;
const WARM_UP_CALLS = 100;

export interface OutboxBench {
  /** Turns of each case. */
  readonly rounds: number;
  readonly say: (line: string) => void;
}

export interface OutboxResult {
  readonly append: string;
  readonly callers: number;
  readonly perCall: number;
  /** Median of a call, with the outbox and without. */
  readonly withMs: number;
  readonly withoutMs: number;
  readonly ratio: number;
}

/** What the outbox adds to the time of an append: the library's door against the same with the outbox cut out of its statements, in short turns. */
export async function runOutboxBench({ rounds, say }: OutboxBench): Promise<OutboxResult[]> {
  const store = await startBenchStore({ max_connections: '200' });
  try {
    say(await describeMachine(store.admin));
    const results: OutboxResult[] = [];
    for (const pair of OUTBOX_PAIRS) {
      say(`${pair.name}, ${pair.callers} callers, ${pair.perCall} a call`);
      results.push(await measurePair(pair, { url: store.url, admin: store.admin, callers: pair.callers }, rounds));
    }
    return results;
  } finally {
    await store.stop();
  }
}

const prepareWith = ({ on }: Pair): Prepare => on((db) => cuttingOutbox(db, { keep: true }));

/** Fails where it has written to the outbox after all. */
export function prepareWithout({ on }: Pair): Prepare {
  const prepare = on((db) => cuttingOutbox(db, { keep: false }));
  return async (setting, perCall) => {
    const made = await prepare(setting, perCall);
    const rowsWritten = async (): Promise<Record<string, number>> => {
      const tables = Object.entries(await made.rowsWritten());
      const isOutbox = ([table]: [string, number]): boolean => table.includes('outbox_events');
      if (!tables.some((table) => isOutbox(table) && table[1] === 0)) throw new Error('a statement without the outbox has written to it');
      return Object.fromEntries(tables.filter((table) => !isOutbox(table)));
    };
    return { ...made, rowsWritten };
  };
}

async function measurePair(pair: Pair, setting: CaseSetting, rounds: number): Promise<OutboxResult> {
  const { name, perCall, callers } = pair;
  const sides: { made: AppendCase; contestant: Contestant; times: number[] }[] = [];
  try {
    for (const [side, prepare] of [prepareWith(pair), prepareWithout(pair)].entries()) {
      const made = await prepare(setting, perCall);
      const label = `${name}, ${side === 0 ? 'with' : 'without'} outbox`;
      sides.push({ made, contestant: { name: label, perCall, callers: made.callers, calls: 0 }, times: [] });
    }
    for (const { contestant } of sides) await turn(contestant, WARM_UP_CALLS);
    for (let round = 0; round < rounds; round += 1) {
      for (const { contestant, times } of sides) times.push(...(await turn(contestant, TURN_CALLS)));
    }
    for (const { made, contestant } of sides) assertWritten(contestant, await made.rowsWritten());
    const [withMs = Number.NaN, withoutMs = Number.NaN] = sides.map(({ times }) => Number(quantile(times, 0.5).toFixed(3)));
    return { append: name, callers, perCall, withMs, withoutMs, ratio: Number((withMs / withoutMs).toFixed(2)) };
  } finally {
    for (const { made } of sides) await made.close();
  }
}

async function turn(contestant: Contestant, calls: number): Promise<number[]> {
  const times: number[] = [];
  for (let call = 0; call < calls; call += 1) {
    const start = performance.now();
    await Promise.all(contestant.callers.map((caller) => caller()));
    times.push(performance.now() - start);
    contestant.calls += contestant.callers.length;
  }
  return times;
}

/** What the project promises of the outbox's part of an append. */
export const outboxExpectations = (results: readonly OutboxResult[]): Expectation[] =>
  results.map(({ append, callers, perCall, ratio }) => ({
    what: `append to a ${append}, ${callers} callers, ${perCall} a call: with the outbox against without`,
    atMost: 1.35,
    found: ratio,
  }));
