export { EVENTS_PER_ROW_MAX, feedTx, insertOutboxBatch, insertOutboxEvents, nextPosition } from './append.sql';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor';
export { feedProbe, feedStreams, readFeed, waitForFeed, type ReadFeed } from './read-feed';
