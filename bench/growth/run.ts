import { registerRunProbes } from '@runplane/runs';
import pg from 'pg';
import { quantile, timesInTurns, WARM_UP_CALLS } from '../support/measure';
import type { Expectation, Result } from '../support/result';
import { compareSmallAndBig, type ComparedStore } from '../support/small-and-big';
import { recording } from '../support/statements';
import { GROWTH_CASES, type GrowthCase } from './cases';
import { loadGrowth, type Size } from './load';
import { countScans, scannedTables } from './plans';

export interface GrowthBench {
  readonly big: Size;
  readonly small: Size;
  readonly calls: number;
  /** Only cases whose name has this in it. */
  readonly only?: string | undefined;
  readonly say: (line: string) => void;
}

export interface GrowthReport {
  readonly results: Result[];
  /** What was read from end to end on the big store: by plan, and by the server's own count. */
  readonly scans: string[];
}

type Store = ComparedStore<Size>;

/** Compares what users do on a small store with the same on a big one, on one server, in turns. */
export function runGrowthBench(bench: GrowthBench): Promise<GrowthReport> {
  return compareSmallAndBig({
    applicationName: 'bench-growth',
    small: bench.small,
    big: bench.big,
    load: async ({ url, db, size }) => {
      bench.say(`loading ${size.runs} runs and ${size.events} events`);
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      await loadGrowth(client, size, bench.say).finally(() => client.end());
      registerRunProbes(db);
    },
    compare: (small, big) => compare(small, big, bench),
    say: bench.say,
  });
}

async function compare(small: Store, big: Store, bench: GrowthBench): Promise<GrowthReport> {
  const results: Result[] = [];
  const scans: string[] = [];
  const cases = GROWTH_CASES.filter(({ name }) => bench.only === undefined || name.includes(bench.only));
  const before = await countScans(big.admin);
  for (const growthCase of cases) {
    results.push(...(await compareCase(growthCase, small, big, bench)));
    bench.say(`${growthCase.name}: ${results.at(-2)?.p50Ms} ms, ${results.at(-1)?.p50Ms} ms`);
  }
  const after = await countScans(big.admin);
  for (const [table, count] of after) {
    const found = count - (before.get(table) ?? 0);
    if (found > 0) scans.push(`${table} was read from end to end ${found} times`);
  }
  for (const growthCase of cases) {
    const { db, statements } = recording(big.db);
    await (
      await growthCase.prepare(db, big.size, 1)
    )();
    for (const statement of statements.values()) {
      for (const table of await scannedTables(big.admin, statement))
        scans.push(`${growthCase.name}: the plan of a statement scans ${table}`);
    }
  }
  return { results, scans: [...new Set(scans)] };
}

async function compareCase({ name, prepare }: GrowthCase, small: Store, big: Store, { calls }: GrowthBench): Promise<Result[]> {
  const rivals = [];
  for (const { db, size } of [small, big]) rivals.push(await prepare(db, size, WARM_UP_CALLS + calls));
  const times = await timesInTurns(rivals, calls);
  const leastDisturbed = times.map((latencies) => quantile(latencies, LEAST_DISTURBED / 2));
  return times.map((latencies, i) => {
    const p50Ms = leastDisturbed[i] ?? Number.NaN;
    return {
      case: `${i === 0 ? 'small' : 'big'}: ${name}`,
      callers: 1,
      perCall: 1,
      perSecond: round3(1_000 / p50Ms),
      p50Ms: round3(p50Ms),
      p99Ms: round3(quantile(latencies, 0.99)),
      ratio: round3(p50Ms / (leastDisturbed[0] ?? Number.NaN)),
    };
  });
}

/** The part of the calls, the fastest, whose median counts: what other programs have delayed says nothing about the store. */
const LEAST_DISTURBED = 0.5;

const round3 = (value: number): number => Number(value.toFixed(3));

/** What the project promises of growth: on a thousand times the rows everything bounded takes at most twice the time, and no table is read whole. */
export function growthExpectations({ results, scans }: GrowthReport): Expectation[] {
  const unbounded = new Set(GROWTH_CASES.filter(({ isBounded }) => isBounded === false).map(({ name }) => `big: ${name}`));
  return [
    ...results
      .filter((result) => result.case.startsWith('big: ') && !unbounded.has(result.case))
      .map((result) => ({ what: `${result.case.slice(5)}, big against small`, found: result.ratio, atMost: 2 })),
    { what: 'big tables read from end to end', found: scans.length, atMost: 0 },
  ];
}
