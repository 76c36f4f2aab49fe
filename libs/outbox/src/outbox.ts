import { eachInOwnTransaction, type Db } from '@runplane/database';
import { registerFeedConsumer } from './register-feed-consumer';
import { rewindFeedConsumer } from './rewind-feed-consumer';

/**
 * The one-call form of the operations of more than one statement: each in a transaction of its own. Reads, commits and deletions take the store
 * handle themselves.
 */
export function createOutbox(db: Db) {
  return eachInOwnTransaction(db, { registerFeedConsumer, rewindFeedConsumer });
}
