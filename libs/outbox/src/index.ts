export { EVENTS_PER_ROW_MAX, feedTx, insertOutboxBatch, insertOutboxEvents, nextPosition } from './append.sql';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor';
export type { FeedPlace } from './feed.sql';
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
export { feedProbe, feedStreams, readFeed, waitForFeed, type ReadFeed } from './read-feed';
export * from './relay';
