import { migrate, openDb, type Db } from '@runplane/database';
import {
  explainFeed,
  explainSink,
  getFeedStatus,
  getRelayStatus,
  getSinkStatus,
  listBlockedKeys,
  listFeedConsumers,
  listParkedEvents,
} from '@runplane/outbox';
import type pg from 'pg';
import { quantile, type Caller } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, openPlainPool, startBenchStore } from '../support/store';
import { loadBacklog, STUCK, WELL } from './load';

export interface RelayStatusBench {
  readonly rows: number;
  readonly smallRows: number;
  readonly calls: number;
  readonly say: (line: string) => void;
}

export interface RelayStatusResult {
  readonly case: string;
  readonly smallP50: number;
  readonly bigP50: number;
  readonly bigP95: number;
  readonly ratio: number;
}

/** What an operator, a scrape of metrics and `why` ask; of a sink with the whole outbox before it, and of one that has got everything. */
const CASES: Record<string, (db: Db) => Promise<unknown>> = {
  'status of all sinks': (db) => getRelayStatus(db),
  'status of a sink that is stuck': (db) => getSinkStatus(db, { sink: STUCK }),
  'status of a sink that is well': (db) => getSinkStatus(db, { sink: WELL }),
  'a page of blocked keys': (db) => listBlockedKeys(db, { sink: STUCK }),
  'a page of parked keys': (db) => listBlockedKeys(db, { sink: STUCK, state: 'parked' }),
  'one key': (db) => listBlockedKeys(db, { sink: STUCK, key: 'acme/r1' }),
  'why of a key': (db) => explainSink(db, { sink: STUCK, key: 'acme/r1' }),
  'why of a shard': (db) => explainSink(db, { sink: STUCK, shard: 1 }),
  'why of a shard that is well': (db) => explainSink(db, { sink: WELL, shard: 1 }),
  'status of the feed': (db) => getFeedStatus(db, { tenantId: undefined }),
  'status of the feed, of a tenant': (db) => getFeedStatus(db, { tenantId: 'acme' }),
  'why of the feed': (db) => explainFeed(db, { tenantId: undefined, consumer: 'reader-1' }),
  'twenty consumers far behind': (db) => listFeedConsumers(db, { tenantId: undefined }),
  'a look for what is parked for too long': (db) => listParkedEvents(db.sql, { tenantId: undefined, days: 1, after: null }),
};

const SETTINGS = { wal_level: 'minimal', max_wal_senders: '0', max_wal_size: '8GB', checkpoint_timeout: '30min' };

/** Compares what is asked of a small outbox with the same of a big one, on one server, in turns. */
export async function runRelayStatusBench(bench: RelayStatusBench): Promise<RelayStatusResult[]> {
  const server = await startBenchStore(SETTINGS);
  const stores: { readonly db: Db; readonly admin: pg.Pool }[] = [];
  try {
    bench.say(await describeMachine(server.admin));
    await server.admin.query('CREATE DATABASE small');
    const smallUrl = new URL(server.url);
    smallUrl.pathname = '/small';
    await migrate(smallUrl.toString());
    for (const [url, rows] of [
      [smallUrl.toString(), bench.smallRows],
      [server.url, bench.rows],
    ] as const) {
      const store = {
        db: await openDb({ url, poolMax: 2, applicationName: 'bench-relay-status', onError: () => undefined }),
        admin: openPlainPool(url, 2),
      };
      stores.push(store);
      await loadBacklog(store, rows, bench.say);
    }
    await server.admin.query('CHECKPOINT');
    const results: RelayStatusResult[] = [];
    for (const [name, ask] of Object.entries(CASES)) {
      const [small = [], big = []] = await timesOf(
        stores.map(
          ({ db }) =>
            () =>
              ask(db),
        ),
        bench.calls,
      );
      const [smallP50, bigP50] = [quantile(small, 0.5), quantile(big, 0.5)];
      results.push({
        case: name,
        smallP50: round(smallP50),
        bigP50: round(bigP50),
        bigP95: round(quantile(big, 0.95)),
        ratio: round(bigP50 / smallP50),
      });
      bench.say(`${name}: ${round(smallP50)} ms, ${round(bigP50)} ms`);
    }
    return results;
  } finally {
    for (const { db, admin } of stores) {
      await db.close();
      await admin.end();
    }
    await server.stop();
  }
}

const WARM_UP_CALLS = 8; // plans settle after five

/** The calls alternate, so that whatever else the machine does meets both. */
async function timesOf(rivals: readonly Caller[], calls: number): Promise<number[][]> {
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

const round = (value: number): number => Number(value.toFixed(2));

/** Of a hundred times the rows nothing takes more than three times as long: counts end at a bound, the rest is found by an index. */
export function relayStatusExpectations(results: readonly RelayStatusResult[]): Expectation[] {
  return results.map(({ case: name, ratio }) => ({ what: `${name}, big against small`, found: ratio, atMost: 3 }));
}
