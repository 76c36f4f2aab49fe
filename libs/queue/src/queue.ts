import { eachInOwnTransaction, type Db } from '@runplane/database';
import { cancelQueueTask } from './cancel-queue-task';
import { setLaneLimit } from './lane-limits';
import { activateQueueRetry, noteReservationFailure, reserveQueueRetry } from './queue-retries';
import { requeueSubmission } from './requeue-submission';
import { runQueueTask } from './run-queue-task';
import { scheduleQueueTask } from './schedule-queue-task';
import { releaseSubmission } from './settle-submissions';
import { updateQueueAttempt } from './update-queue-attempt';

/**
 * The one-call form of the operations: each in a transaction of its own. Making, claiming, renewing and ending tasks, and all reads, take the store handle
 * themselves: each is one statement. For calls that belong into your own transaction use the functions themselves, with a Tx.
 */
export function createQueue(db: Db) {
  return eachInOwnTransaction(db, {
    activateQueueRetry,
    cancelQueueTask,
    noteReservationFailure,
    releaseSubmission,
    requeueSubmission,
    reserveQueueRetry,
    runQueueTask,
    scheduleQueueTask,
    setLaneLimit,
    updateQueueAttempt,
  });
}
