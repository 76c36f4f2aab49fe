import { setTimeout as delay } from 'node:timers/promises';
import { openDb, type Db } from '@runplane/database';
import type pg from 'pg';
import { quantile } from '../support/measure';
import type { Expectation } from '../support/result';
import { pagesTouched, recording } from '../support/statements';
import { describeMachine, startBenchStore } from '../support/store';
import { timedCall, type ClaimCase } from './claim-case';
import { measureFairness } from './fairness';
import { fillOneSession, fillSessions, HUNDRED_SUBMISSIONS, prepareSubmissions, SUBMISSION_CASES } from './submissions';
import { fillTasks, HUNDRED_TASKS, prepareTasks, TASK_CASES } from './tasks';

export interface ClaimBench {
  /** Tasks of the backlog. */
  readonly tasks: number;
  /** Sessions with a submission each, and submissions of one session. */
  readonly sessions: number;
  readonly calls: number;
  /** Claims of tasks, and of submissions, between the last two stages. */
  readonly cycles: number;
  /** Only cases whose name has this. */
  readonly only: string;
  readonly say: (line: string) => void;
}

/** One case: milliseconds of a claim on the empty store, behind the backlog, right after the cycles, and when autovacuum has come by after them. */
export interface ClaimResult {
  readonly case: string;
  readonly emptyP50: number;
  readonly emptyP95: number;
  readonly backlogP50: number;
  readonly backlogP95: number;
  readonly laterP50: number;
  readonly laterP95: number;
  readonly restedP50: number;
  readonly restedP95: number;
  /** Of 8 kB, that the claim of one call touches behind the backlog, right after the cycles, and at the end. */
  readonly pages: number;
  readonly laterPages: number;
  readonly restedPages: number;
}

export interface ClaimReport {
  readonly results: readonly ClaimResult[];
  readonly fairness: readonly Expectation[];
}

const CASES = [...TASK_CASES, ...SUBMISSION_CASES];
const STAGES = ['empty', 'backlog', 'later', 'rested'] as const;
type Stage = (typeof STAGES)[number];
type Found = Record<Stage, number[]> & { readonly pages: Partial<Record<Stage, number>> };

/** Measures claims one after another: on an empty store, behind a backlog, and after so many claims and ends as leave dead rows behind. */
export async function runClaimBench({ tasks, sessions, calls, cycles, only, say }: ClaimBench): Promise<ClaimReport> {
  const store = await startBenchStore();
  const db = await openDb({ url: store.url });
  try {
    say(await describeMachine(store.admin));
    await prepareTasks(db);
    await prepareSubmissions(db, store.admin);
    const cases = CASES.filter(({ name }) => name.includes(only));
    const found = new Map(cases.map((each): [ClaimCase, Found] => [each, { empty: [], backlog: [], later: [], rested: [], pages: {} }]));
    const measure = async (stage: Stage): Promise<void> => {
      say(`${stage}: ${calls} calls of each case`);
      for (let call = 0; call < calls; call += 1) for (const [each, latencies] of found) latencies[stage].push(await timedCall(db, each));
      for (const [each, { pages }] of found) pages[stage] = await pagesOf(db, store.admin, each);
    };
    await measure('empty');
    say(`${tasks} tasks, ${sessions} sessions with a submission and one with ${sessions} are put before them`);
    await fillTasks(store.admin, tasks);
    await fillSessions(store.admin, 'backlog', sessions);
    await fillOneSession(store.admin, sessions);
    await measure('backlog');
    for (const hundred of [HUNDRED_TASKS, HUNDRED_SUBMISSIONS].filter(({ name }) => name.includes(only)))
      await cycle(db, hundred, cycles, say);
    await measure('later');
    if (await autovacuumed(store.admin, say)) await measure('rested');
    return { results: [...found].map(([each, all]) => resultOf(each, all)), fairness: only === '' ? await measureFairness(db, say) : [] };
  } finally {
    await db.close();
    await store.stop();
  }
}

/** Of the statement that claims, the first that a call sends; of a lane with a limit a second one, which counts, comes behind it. */
async function pagesOf(db: Db, admin: pg.Pool, { before, call }: ClaimCase): Promise<number> {
  await before(db);
  const recorded = recording(db);
  const { after } = await call(recorded.db);
  await after();
  const [first, ...others] = recorded.statements.values();
  if (first === undefined) return Number.NaN;
  let pages = await pagesTouched(admin, first);
  for (const other of others.filter(({ text }) => text.includes('room AS MATERIALIZED'))) pages += await pagesTouched(admin, other);
  return pages;
}

const PROGRESS_PARTS = 10;

async function cycle(db: Db, each: ClaimCase, cycles: number, say: (line: string) => void): Promise<void> {
  let told = 0;
  for (let done = 0; done < cycles; done += each.gets) {
    if (done >= (told * cycles) / PROGRESS_PARTS) {
      say(`${each.name}: ${done} of ${cycles} claims`);
      told += 1;
    }
    await timedCall(db, each);
  }
}

function resultOf({ name }: ClaimCase, { pages, ...latencies }: Found): ClaimResult {
  const [emptyP50, emptyP95, backlogP50, backlogP95, laterP50, laterP95, restedP50, restedP95] = STAGES.flatMap((stage) =>
    [0.5, 0.95].map((part) => Number(quantile(latencies[stage], part).toFixed(3))),
  ) as [number, number, number, number, number, number, number, number];
  const pagesIn = (stage: Stage): number => pages[stage] ?? Number.NaN;
  return {
    ...{ case: name, emptyP50, emptyP95, backlogP50, backlogP95, laterP50, laterP95, restedP50, restedP95 },
    ...{ pages: pagesIn('backlog'), laterPages: pagesIn('later'), restedPages: pagesIn('rested') },
  };
}

/** It comes by once a minute (autovacuum_naptime), and takes its time with large tables. */
const AUTOVACUUM_MS = 300_000;

/** Waits until autovacuum has begun and ended a pass over the tables of queues after now. False: it found nothing to do. */
async function autovacuumed(admin: pg.Pool, say: (line: string) => void): Promise<boolean> {
  say('waiting for autovacuum');
  const tables = `relname IN ('queue_tasks', 'submission_heads') AND schemaname = 'runplane'`;
  const { rows } = await admin.query<{ now: string; busy: number }>(
    `SELECT now()::text AS now, count(*) FILTER (WHERE n_dead_tup > 20000)::int AS busy FROM pg_stat_user_tables WHERE ${tables}`,
  );
  const [start] = rows;
  if (start === undefined || start.busy === 0) return false;
  for (const late = Date.now() + AUTOVACUUM_MS; Date.now() < late; await delay(1_000)) {
    const { rows: found } = await admin.query<{ left: number }>(
      `SELECT count(*)::int AS left FROM pg_stat_user_tables t WHERE ${tables} AND n_dead_tup > 20000 AND (last_autovacuum IS NULL OR last_autovacuum < $1)
         OR EXISTS (SELECT FROM pg_stat_progress_vacuum) AND ${tables}`,
      [start.now],
    );
    if (found[0]?.left === 0) return true;
  }
  throw new Error('autovacuum has not come by');
}

const orElse = (found: number, other: number): number => (Number.isNaN(found) ? other : found);

/** More than the parts of the statement need, far less than a backlog has. */
const IDLE_PAGES_MAX = 100;

export function claimExpectations({ results, fairness }: ClaimReport): Expectation[] {
  return [
    ...results.flatMap((result) => [
      { what: `p95 of ${result.case} behind a backlog, against the empty store`, found: result.backlogP95 / result.emptyP95, atMost: 2 },
      {
        what: `p95 of ${result.case} after many claims and autovacuum, against before them`,
        found: orElse(result.restedP95, result.laterP95) / result.backlogP95,
        atMost: 1.5,
      },
    ]),
    ...results
      .filter(({ case: name }) => name.includes('idle poll'))
      .flatMap(({ case: name, pages, laterPages }) => [
        { what: `pages of ${name} behind a backlog`, found: pages, atMost: IDLE_PAGES_MAX },
        { what: `pages of ${name} right after many claims`, found: laterPages, atMost: IDLE_PAGES_MAX },
      ]),
    ...fairness,
  ];
}
