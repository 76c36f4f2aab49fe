import { eachInOwnTransaction, type Db } from '@runplane/database';
import { createSession } from './create-session';
import { endSubmission } from './end-submission';
import { importSubmissions } from './import-submissions';
import { renameSession } from './rename-session';
import { markSessionStorageEvicted, refreshSessionStorage } from './session-storage';
import { upsertSession } from './upsert-session';

/** The one-call form of the operations: each in a transaction of its own. Reads and read marks take the store handle themselves. */
export function createSessions(db: Db) {
  return eachInOwnTransaction(db, {
    endSubmission,
    importSubmissions,
    createSession,
    upsertSession,
    renameSession,
    refreshSessionStorage,
    markSessionStorageEvicted,
  });
}
