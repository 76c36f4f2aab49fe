import { openDb, type Db } from '@runplane/database';
import { quantile } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import { CLAIM_CASES, endClaims, fillBacklog, prepareTasks, type ClaimCase } from './tasks';

export interface ClaimBench {
  readonly tasks: number;
  readonly calls: number;
  readonly cycles: number;
  readonly say: (line: string) => void;
}

/** One case: milliseconds of a claim on the empty store, behind the backlog, and after the cycles. */
export interface ClaimResult {
  readonly case: string;
  readonly emptyP50: number;
  readonly emptyP95: number;
  readonly backlogP50: number;
  readonly backlogP95: number;
  readonly laterP50: number;
  readonly laterP95: number;
}

type Stage = 'empty' | 'backlog' | 'later';
type Latencies = Record<Stage, number[]>;

/** Measures claims one after another: on an empty store, behind a backlog, and after so many claims and ends as leave dead rows behind. */
export async function runClaimBench({ tasks, calls, cycles, say }: ClaimBench): Promise<ClaimResult[]> {
  const store = await startBenchStore();
  const db = await openDb({ url: store.url });
  try {
    say(await describeMachine(store.admin));
    await prepareTasks(db);
    const found = new Map(CLAIM_CASES.map((each): [ClaimCase, Latencies] => [each, { empty: [], backlog: [], later: [] }]));
    const measure = async (stage: Stage): Promise<void> => {
      say(`${stage}: ${calls} calls of each case`);
      for (let call = 0; call < calls; call += 1) for (const [each, latencies] of found) latencies[stage].push(await timed(db, each));
    };
    await measure('empty');
    say(`${tasks} tasks are put before them`);
    await fillBacklog(store.admin, tasks);
    await measure('backlog');
    say(`${cycles} tasks are made, claimed and ended`);
    await cycle(db, cycles);
    await measure('later');
    return [...found].map(([each, latencies]) => resultOf(each, latencies));
  } finally {
    await db.close();
    await store.stop();
  }
}

async function timed(db: Db, { name, before, call, gets }: ClaimCase): Promise<number> {
  await before(db);
  const start = performance.now();
  const claimed = await call(db);
  const took = performance.now() - start;
  if (claimed.length !== gets) throw new Error(`${name}: ${claimed.length} tasks were claimed, not ${gets}`);
  if (claimed.length > 0) await endClaims(db, claimed);
  return took;
}

async function cycle(db: Db, cycles: number): Promise<void> {
  const hundred = CLAIM_CASES.find(({ gets }) => gets === 100);
  if (hundred === undefined) return;
  for (let done = 0; done < cycles; done += hundred.gets) await timed(db, hundred);
}

function resultOf({ name }: ClaimCase, { empty, backlog, later }: Latencies): ClaimResult {
  const [emptyP50, emptyP95, backlogP50, backlogP95, laterP50, laterP95] = [empty, backlog, later].flatMap((latencies) =>
    [0.5, 0.95].map((part) => Number(quantile(latencies, part).toFixed(3))),
  ) as [number, number, number, number, number, number];
  return { case: name, emptyP50, emptyP95, backlogP50, backlogP95, laterP50, laterP95 };
}

export function claimExpectations(results: readonly ClaimResult[]): Expectation[] {
  return results.flatMap((result) => [
    { what: `p95 of ${result.case} behind a backlog, against the empty store`, found: result.backlogP95 / result.emptyP95, atMost: 2 },
    { what: `p95 of ${result.case} after many claims, against before them`, found: result.laterP95 / result.backlogP95, atMost: 1.5 },
  ]);
}
