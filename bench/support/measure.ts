import { setTimeout as delay } from 'node:timers/promises';

/** One caller of a case: does one call and resolves when it is done. Callers of a case run at the same time, each waits for its own calls. */
export type Caller = () => Promise<unknown>;

/** What is compared: set up once, measured in turns with its rivals. */
export interface Contestant {
  readonly name: string;
  /** Events (rows, jobs …) that one call does. */
  readonly perCall: number;
  readonly callers: readonly Caller[];
  /** How many calls have succeeded, warm-up included: what the rows in the database are compared with. */
  calls: number;
}

export interface Turns {
  readonly rounds: number;
  readonly seconds: number;
  /** At the start of each turn, not counted: connections that were closed while idle come back and settle their plans, caches fill. */
  readonly leadInMs?: number | undefined;
  /** Told before each turn. */
  readonly onTurn?: ((round: number, contestant: Contestant) => void) | undefined;
}

export interface Measured {
  readonly contestant: Contestant;
  /** Events per second, of the median round. */
  readonly perSecond: number;
  /** Of one call, over all rounds. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Before a case is first measured: plans settle after five executions, the JIT after some thousand calls. */
const WARM_UP_MS = 1_000;
const LEAD_IN_MS = 250;
/** After each turn: what the case has left running (hints) ends in its own time. */
const PAUSE_MS = 50;

/** Measures the contestants in turns, so that whatever else the machine does meets them all. */
export async function measureInTurns(
  contestants: readonly Contestant[],
  { rounds, seconds, leadInMs = LEAD_IN_MS, onTurn }: Turns,
): Promise<Measured[]> {
  for (const contestant of contestants) await runTurn(contestant, WARM_UP_MS, 0);
  const turns = contestants.map((contestant) => ({ contestant, rates: [] as number[], latencies: [] as number[] }));
  for (let round = 1; round <= rounds; round += 1) {
    for (const { contestant, rates, latencies } of turns) {
      onTurn?.(round, contestant);
      const found = await runTurn(contestant, leadInMs, seconds * 1_000);
      rates.push((found.length * contestant.perCall) / seconds);
      for (const latency of found) latencies.push(latency);
      await delay(PAUSE_MS);
    }
  }
  return turns.map(({ contestant, rates, latencies }) => ({
    contestant,
    perSecond: quantile(rates, 0.5),
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
  }));
}

/** Keeps all callers busy for both times; returns the latencies of the calls that ended in the second. */
async function runTurn(contestant: Contestant, leadInMs: number, measuredMs: number): Promise<number[]> {
  const latencies: number[] = [];
  const from = performance.now() + leadInMs;
  const until = from + measuredMs;
  const work = async (call: Caller): Promise<void> => {
    for (let start = performance.now(); start < until;) {
      await call();
      contestant.calls += 1;
      const end = performance.now();
      if (end >= from && end < until) latencies.push(end - start);
      start = end;
    }
  };
  await Promise.all(contestant.callers.map(work));
  return latencies;
}

/** Before a call is first timed by itself: plans settle after five. */
export const WARM_UP_CALLS = 8;

/** The times of single calls in milliseconds, of each rival as many. They alternate, so that whatever else the machine does meets them all. */
export async function timesInTurns(rivals: readonly Caller[], calls: number): Promise<number[][]> {
  for (const call of rivals) for (let i = 0; i < WARM_UP_CALLS; i += 1) await call();
  const times = rivals.map((): number[] => []);
  for (let i = 0; i < calls; i += 1) {
    for (const [at, call] of rivals.entries()) {
      const start = performance.now();
      await call();
      times[at]?.push(performance.now() - start);
    }
  }
  return times;
}

/** The value below which this part of the values lies (nearest rank); NaN without values. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] ?? Number.NaN;
}
