export { feedTx, insertOutboxEvents } from './append.sql';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor';
export { feedProbe, feedStreams, readFeed, waitForFeed, type ReadFeed } from './read-feed';
