// The door of libs/queue: claims of submissions, in the order of their sessions; tasks in named queues, and the attempts at them.

export { cancelQueueTask } from './cancel-queue-task';
export { claimQueueTasks, waitForQueueTasks, type ClaimTasksInput } from './claim-queue-tasks';
export { claimSubmissions, waitForSubmissions, type ClaimSubmissionsInput } from './claim-submissions';
export { createQueueTask, createQueueTasks } from './create-queue-tasks';
export { explainQueueTask } from './explain-queue-task';
export { explainSubmission } from './explain-submission';
export { failExhaustedSubmissionsOnce } from './fail-exhausted-submissions';
export { listQueueLanes, setLaneLimit } from './lane-limits';
export { pruneQueueTasksOnce } from './prune-queue-tasks';
export { createQueue } from './queue';
export { activateQueueRetry, noteReservationFailure, reserveQueueRetry } from './queue-retries';
export {
  getQueueCommander,
  getQueueStats,
  getQueueTask,
  listQueueAttempts,
  listQueueTaskChanges,
  listQueueTasks,
  markQueueTasksRead,
  type ListQueueTaskChanges,
  type ListQueueTasks,
} from './read-queue-tasks';
export { readyDueTasksOnce } from './ready-due-tasks';
export { renewSubmission, renewSubmissions } from './renew-submissions';
export { requeueSubmission } from './requeue-submission';
export { runQueueTask } from './run-queue-task';
export { scheduleQueueTask } from './schedule-queue-task';
export { expireReservationsOnce, settleAttemptsOnce, type QueuePass } from './settle-attempts';
export { renewQueueTask, renewQueueTasks, settleQueueTask, settleQueueTasks } from './settle-queue-tasks';
export { releaseSubmission, settleSubmissions } from './settle-submissions';
export { startQueuedTurnsOnce, type StartedTurns } from './start-queued-turns';
export { sweepQueueLeasesOnce } from './sweep-queue-leases';
export { type TaskKey } from './task.sql';
export { updateQueueAttempt } from './update-queue-attempt';
