// The feed's consumers and retention: nothing is removed under a reader, nothing committed twice.
import { consumers, feedStatus } from '../places.mjs';

export const feedGuards = [
  {
    name: 'hints that follow closely are one notification',
    file: 'libs/database/src/hub.ts',
    text: 'Math.max(0, this.#sentAt + this.#settings.notifyEveryMs - performance.now())',
    replacement: '0',
    test: { file: 'libs/database/src/hub.int.spec.ts', name: 'goes out at once when none has for a while' },
  },
  {
    name: 'a feed that is empty stands at its floor',
    file: 'libs/outbox/src/read-feed.ts',
    text: 'return laterPlace(floorOf(store), ',
    replacement: 'return laterPlace(FEED_START, ',
    test: consumers('waits for what a sink has not got'),
  },
  {
    name: 'a commit begins where the consumer stands',
    file: 'libs/outbox/src/feed-consumer.sql.ts',
    text: 'AND (tx, position) = (${String(from.tx)}::bigint, ${String(from.position)}::bigint)',
    replacement: 'AND ${String(from.tx)}::bigint >= 0 AND ${String(from.position)}::bigint >= 0',
    test: consumers('the second of two is told where the first has come'),
  },
  {
    name: 'a commit leads to a place that this store has reached',
    file: 'libs/outbox/src/feed-consumer.sql.ts',
    text: 'AND ${String(to.tx)}::bigint <= runplane.feed_horizon() AND',
    replacement: 'AND',
    test: consumers('is refused a place that this store has not reached'),
  },
  {
    name: 'whoever begins to need events holds the floor',
    file: 'libs/outbox/src/register-feed-consumer.ts',
    text: 'await holdOutboxFloor(tx);',
    replacement: '',
    test: consumers('does not overtake a consumer that is just registering'),
  },
  {
    name: 'retention waits for sinks',
    file: 'libs/outbox/src/floor-holders.sql.ts',
    text: 'const HOLDERS: readonly Holders[] = [consumers, sinks];',
    replacement: 'const HOLDERS: readonly Holders[] = [consumers, ...[sinks].slice(1)];',
    test: consumers('waits for what a sink has not got'),
  },
  {
    name: 'retention waits for consumers',
    file: 'libs/outbox/src/floor-holders.sql.ts',
    text: 'const HOLDERS: readonly Holders[] = [consumers, sinks];',
    replacement: 'const HOLDERS: readonly Holders[] = [sinks, ...[consumers].slice(1)];',
    test: consumers('waits for consumers, but not for one that has been silent'),
  },
  {
    name: 'a filtered scan ends with its events, too',
    file: 'libs/outbox/src/feed.sql.ts',
    text: 'WHERE o.is_mine AND o.is_within)',
    replacement: 'WHERE o.is_mine)',
    test: feedStatus('never makes a call look at more events than the bound'),
  },
];
