import { eachInOwnTransaction, type Db } from '@runplane/database';
import { createSession } from './create-session';
import { renameSession } from './rename-session';
import { markSessionStorageEvicted, refreshSessionStorage } from './session-storage';
import { upsertSession } from './upsert-session';

/** The one-call form of the operations: each in a transaction of its own. Reads and read marks take the store handle themselves. */
export function createSessions(db: Db) {
  return eachInOwnTransaction(db, { createSession, upsertSession, renameSession, refreshSessionStorage, markSessionStorageEvicted });
}
