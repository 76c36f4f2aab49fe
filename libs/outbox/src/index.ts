// The door of libs/outbox: how events leave a transaction, and how they are read.

export { EVENTS_PER_ROW_MAX, feedTx, insertOutboxBatch, insertOutboxEvents, nextPosition } from './append.sql';
export { CHANGE_HEAD, changePage, defineChangeList, type ChangePage, type ChangesAfter, type ChangesWanted } from './change-list';
export { commitFeedConsumer } from './commit-feed-consumer';
export { deleteFeedConsumer } from './delete-feed-consumer';
export { explainFeed, type ExplainFeed } from './explain-feed';
export { type ConsumerKey, type FeedScope } from './feed-consumer.sql';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor';
export { getFeedStatus, type GetFeedStatus } from './feed-status';
export type { FeedPlace } from './feed.sql';
export { createOutbox } from './outbox';
export { pruneOutboxOnce, type PrunedOutbox, type PruneOutbox } from './prune-outbox-once';
export { inKeyOrder, keyOf, SENT, SKIPPED } from './publish-outcomes';
export {
  failed,
  FAILURE_REASONS,
  refused,
  REFUSALS,
  type FailureReason,
  type Publisher,
  type PublishOptions,
  type PublishOutcome,
  type PublishRecord,
  type RefusalReason,
} from './publisher';
export { feedProbe, feedStreams, readFeed, streamFeed, waitForFeed, type ReadFeed } from './read-feed';
export { getFeedConsumer, listFeedConsumers } from './read-feed-consumers';
export { registerFeedConsumer } from './register-feed-consumer';
export * from './relay';
export { rewindFeedConsumer } from './rewind-feed-consumer';
export { listWebhookDeliveries, pruneWebhookDeliveriesOnce, webhookDeliveryLog, type ListWebhookDeliveries } from './webhook/delivery-log';
