import { eachInOwnTransaction, type Db } from '@runplane/database';
import { retryBlockedKeys, skipBlockedEvent } from './blocked-keys';
import { disableSink, enableSink, republish } from './change-sink';

/** The one-call form of what an operator changes: each in a transaction of its own. */
export function createRelayControl(db: Db) {
  return eachInOwnTransaction(db, { disableSink, enableSink, republish, retryBlockedKeys, skipBlockedEvent });
}
