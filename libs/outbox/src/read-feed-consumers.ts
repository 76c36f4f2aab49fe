import {
  FEED_CONSUMER_SILENT_DAYS_DEFAULT,
  FEED_LAG_LIST_ROWS_MAX,
  FEED_LAG_ROWS_MAX,
  type FeedConsumer,
  type FeedConsumerList,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { consumerNotFound, parseConsumerName } from './feed-consumer-input';
import { listConsumerRows, scopeOf, type ConsumerKey, type ConsumerRow, type FeedScope } from './feed-consumer.sql';
import { encodeFeedCursor } from './feed-cursor';

const DAY_MS = 86_400_000;
/** After how long a silent consumer holds retention back no longer, unless a process is told otherwise. */
export const CONSUMER_SILENT_MS_DEFAULT = FEED_CONSUMER_SILENT_DAYS_DEFAULT * DAY_MS;

export interface SilenceRule {
  /** As the pruner has it. */
  readonly silentMs?: number | undefined;
}

/** A registered consumer, with what lies behind it. One statement, no lock; reads FEED_LAG_ROWS_MAX rows of the outbox at most. Errors: FeedConsumerNotFound. */
export async function getFeedConsumer(
  at: At,
  { tenantId, name, silentMs = CONSUMER_SILENT_MS_DEFAULT }: ConsumerKey & SilenceRule,
): Promise<FeedConsumer> {
  const key = { tenantId, name: parseConsumerName(name) };
  const [found] = await listConsumerRows(executorOf(at), { scope: scopeOf(key), name: key.name, lagRows: FEED_LAG_ROWS_MAX, silentMs });
  if (found === undefined) throw consumerNotFound(key.name);
  return toFeedConsumer(found);
}

/** All consumers of a tenant, or the operator's own; with `all` those of every scope. By name; one statement, no lock. */
export async function listFeedConsumers(
  at: At,
  { all = false, silentMs = CONSUMER_SILENT_MS_DEFAULT, ...scope }: FeedScope & SilenceRule & { all?: boolean },
): Promise<FeedConsumerList> {
  const found = await listConsumerRows(executorOf(at), {
    scope: all ? undefined : scopeOf(scope),
    lagRows: FEED_LAG_LIST_ROWS_MAX,
    silentMs,
  });
  return { consumers: found.map(toFeedConsumer) };
}

export function toFeedConsumer(row: ConsumerRow): FeedConsumer {
  const { storeId, scope, name, tx, position, registeredAt, seenAt, seenForMs, movedAt, isBelowFloor } = row;
  return {
    name,
    tenantId: scope === '*' ? null : scope,
    cursor: encodeFeedCursor(storeId, { tx, position }),
    lag: { events: row.lagEvents, isExact: row.lagIsExact, ms: row.lagMs ?? 0 },
    registeredAt,
    seenAt,
    seenForMs,
    movedAt,
    holdsFloor: !isBelowFloor && !row.isSilent,
    isExpired: isBelowFloor,
  };
}
