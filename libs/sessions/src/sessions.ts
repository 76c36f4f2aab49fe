import { eachInOwnTransaction, type Db } from '@runplane/database';
import { requestApproval } from './ask-approval';
import { requestInput } from './ask-input';
import { createSession } from './create-session';
import { endSubmission } from './end-submission';
import { importSubmissions } from './import-submissions';
import { renameSession } from './rename-session';
import { resolveApproval, resolveInput } from './resolve-requests';
import { markSessionStorageEvicted, refreshSessionStorage } from './session-storage';
import { upsertSession } from './upsert-session';

/** The one-call form of the operations: each in a transaction of its own. Reads and read marks take the store handle themselves. */
export function createSessions(db: Db) {
  return eachInOwnTransaction(db, {
    endSubmission,
    importSubmissions,
    createSession,
    requestApproval,
    requestInput,
    resolveApproval,
    resolveInput,
    upsertSession,
    renameSession,
    refreshSessionStorage,
    markSessionStorageEvicted,
  });
}
