import type { Db } from '@runplane/database';
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
import { quantile, timesInTurns } from '../support/measure';
import type { Expectation } from '../support/result';
import { compareSmallAndBig } from '../support/small-and-big';
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

/** Compares what is asked of a small outbox with the same of a big one, on one server, in turns. */
export function runRelayStatusBench({ rows, smallRows, calls, say }: RelayStatusBench): Promise<RelayStatusResult[]> {
  return compareSmallAndBig({
    applicationName: 'bench-relay-status',
    small: smallRows,
    big: rows,
    load: (store) => loadBacklog(store, store.size, say),
    compare: async (...stores) => {
      const results: RelayStatusResult[] = [];
      for (const [name, ask] of Object.entries(CASES)) {
        const [small = [], big = []] = await timesInTurns(
          stores.map(
            ({ db }) =>
              () =>
                ask(db),
          ),
          calls,
        );
        const [smallP50, bigP50] = [quantile(small, 0.5), quantile(big, 0.5)];
        results.push({
          case: name,
          smallP50: round(smallP50),
          bigP50: round(bigP50),
          bigP95: round(quantile(big, 0.95)),
          ratio: round(bigP50 / smallP50),
        });
        say(`${name}: ${round(smallP50)} ms, ${round(bigP50)} ms`);
      }
      return results;
    },
    say,
  });
}

const round = (value: number): number => Number(value.toFixed(2));

/** Of a hundred times the rows nothing takes more than three times as long: counts end at a bound, the rest is found by an index. */
export function relayStatusExpectations(results: readonly RelayStatusResult[]): Expectation[] {
  return results.map(({ case: name, ratio }) => ({ what: `${name}, big against small`, found: ratio, atMost: 3 }));
}
