import { setTimeout as delay } from 'node:timers/promises';
import v8 from 'node:v8';
import vm from 'node:vm';
import { openDb, type Db } from '@runplane/database';
import { appendRunEvents, getRun, registerRunProbes } from '@runplane/runs';
import type pg from 'pg';
import { claimTurns, TENANT, type ClaimedTurn } from '../append/claimed-turns';
import { quantile } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import { prepareHttp } from './http';
import { prepareLibrary } from './library';
import { stamp, type WaitersCase, type WaitersSetting } from './waiters-case';

const CASES: readonly { name: string; prepare: (setting: WaitersSetting) => Promise<WaitersCase> }[] = [
  { name: 'library', prepare: prepareLibrary },
  { name: 'http', prepare: prepareHttp },
];

export interface WaitersBench {
  readonly waiters: number;
  readonly runs: number;
  readonly changes: number;
  readonly say: (line: string) => void;
}

export interface WaitersResult {
  readonly case: string;
  readonly waiters: number;
  /** What the waiters cost this process. */
  readonly rssMB: number;
  readonly heapMB: number;
  /** Connections of the pool that were in use at one time while all waited: the client's count and the server's, the greatest of all samples. */
  readonly poolInUse: number;
  readonly serverBusy: number;
  /** From the call of the append to the event's arrival at a waiter. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Lets many wait in one process and counts what they hold, and how soon one change reaches those who wait for it. */
export async function runWaitersBench({ waiters, runs, changes, say }: WaitersBench): Promise<WaitersResult[]> {
  const store = await startBenchStore();
  const results: WaitersResult[] = [];
  try {
    say(await describeMachine(store.admin));
    for (const { name, prepare } of CASES) {
      const db = await openDb({ url: store.url, applicationName: APPLICATION, onError: () => undefined });
      try {
        registerRunProbes(db);
        await db.hub.start();
        const turns = await claimTurns(db, runs);
        say(`${name}: ${waiters} waiters on ${runs} runs`);
        results.push({ case: name, waiters, ...(await measure(db, store.admin, turns, { waiters, changes, prepare })) });
      } finally {
        await db.close();
      }
    }
    return results;
  } finally {
    await store.stop();
  }
}

/** What the project promises of 2,000 waiters. The safety poll, once a second, is the one statement that may run. */
export function waitersExpectations(results: readonly WaitersResult[]): Expectation[] {
  return results.flatMap(({ case: name, waiters, rssMB, poolInUse }) => [
    { what: `${name}: MB for ${waiters} waiters`, found: rssMB, atMost: 100 },
    { what: `${name}: connections of the pool in use while all wait`, found: poolInUse, atMost: 1 },
  ]);
}

const APPLICATION = 'bench-waiters';
/** Longer than the hub's safety poll, so that it is seen at work. */
const WATCH_MS = 3_000;
const QUIET_MS = 500;
const START_TIMEOUT_MS = 60_000;
const ARRIVAL_TIMEOUT_MS = 10_000;

async function measure(
  db: Db,
  admin: pg.Pool,
  turns: readonly ClaimedTurn[],
  { waiters, changes, prepare }: { waiters: number; changes: number; prepare: (setting: WaitersSetting) => Promise<WaitersCase> },
): Promise<Omit<WaitersResult, 'case' | 'waiters'>> {
  const latencies: number[] = [];
  const runIds = turns.map((turn) => turn.runId);
  const { lastEventSeq: afterSeq } = await getRun(db, { tenantId: TENANT, runId: runIds[0] ?? '' });
  const waitersCase = await prepare({ db, waiters, runIds, afterSeq, onEvent: (latencyMs) => latencies.push(latencyMs) });
  try {
    const before = memory();
    await waitersCase.start();
    await until(
      () => db.hub.stats.subscriptions === waiters,
      START_TIMEOUT_MS,
      () => `${db.hub.stats.subscriptions} of ${waiters} wait`,
    );
    await untilQuiet(db);
    const after = memory();
    const held = await watchConnections(db, admin);
    await sendChanges(db, turns, changes, waiters / turns.length, latencies);
    return {
      rssMB: megabytes(after.rss - before.rss),
      heapMB: megabytes(after.heapUsed - before.heapUsed),
      ...held,
      p50Ms: Number(quantile(latencies, 0.5).toFixed(1)),
      p99Ms: Number(quantile(latencies, 0.99).toFixed(1)),
    };
  } finally {
    await waitersCase.close();
  }
}

/** Whoever waits has read; and the hub's first look at a stream makes its waiters read once more. */
async function untilQuiet(db: Db): Promise<void> {
  const { polls } = db.hub.stats;
  await until(
    () => db.hub.stats.polls >= polls + 2,
    START_TIMEOUT_MS,
    () => 'the safety poll does not run',
  );
  for (let quietMs = 0; quietMs < QUIET_MS; quietMs += 10, await delay(10)) if (inUse(db) > 1) quietMs = 0;
}

const inUse = ({ pool }: Db): number => pool.totalCount - pool.idleCount + pool.waitingCount;

async function watchConnections(db: Db, admin: pg.Pool): Promise<{ poolInUse: number; serverBusy: number }> {
  let [poolInUse, serverBusy] = [0, 0];
  for (const end = performance.now() + WATCH_MS; performance.now() < end; await delay(20)) {
    poolInUse = Math.max(poolInUse, inUse(db));
    const { rows } = await admin.query<{ busy: number }>(
      `SELECT count(*)::int AS busy FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'`,
      [APPLICATION],
    );
    serverBusy = Math.max(serverBusy, rows[0]?.busy ?? 0);
  }
  return { poolInUse, serverBusy };
}

/** One event after the other, each to another run; the next is sent when the last has reached everybody who waits for it. */
async function sendChanges(
  db: Db,
  turns: readonly ClaimedTurn[],
  changes: number,
  readers: number,
  latencies: readonly number[],
): Promise<void> {
  for (let i = 0; i < changes; i += 1) {
    const { runId, epoch } = turns[i % turns.length] as ClaimedTurn;
    await appendRunEvents(db, { tenantId: TENANT, runId, epoch, events: [{ type: 'assistant_message', payload: { text: stamp() } }] });
    const arrived = (i + 1) * readers;
    await until(
      () => latencies.length >= arrived,
      ARRIVAL_TIMEOUT_MS,
      () => `${latencies.length} of ${arrived} events have arrived`,
    );
    await delay(5); // long polls come back
  }
  if (latencies.length !== changes * readers) throw new Error(`${latencies.length} events have arrived, ${changes * readers} were sent`);
}

async function until(isTrue: () => boolean, timeoutMs: number, state: () => string): Promise<void> {
  for (const end = performance.now() + timeoutMs; !isTrue(); await delay(1)) {
    if (performance.now() > end) throw new Error(`${state()} after ${timeoutMs} ms`);
  }
}

v8.setFlagsFromString('--expose-gc');
const collectGarbage = vm.runInNewContext('gc') as () => void;

function memory(): NodeJS.MemoryUsage {
  collectGarbage();
  collectGarbage();
  return process.memoryUsage();
}

const megabytes = (bytes: number): number => Number((bytes / 1024 / 1024).toFixed(1));
