export { feedTx, insertOutboxEvents } from './append.sql';
export { decodeFeedCursor, encodeFeedCursor } from './feed-cursor';
export { feedProbe, readFeed, waitForFeed, type ReadFeed } from './read-feed';
