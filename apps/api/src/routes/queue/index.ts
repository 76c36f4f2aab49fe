import type { Route } from '..';
import { activateQueueRetryRoute } from './activate-queue-retry';
import { cancelQueueTaskRoute } from './cancel-queue-task';
import { claimQueueTasksRoute } from './claim-queue-tasks';
import { createQueueTaskRoute } from './create-queue-task';
import { createQueueTasksRoute } from './create-queue-tasks';
import { explainQueueTaskRoute } from './explain-queue-task';
import { getQueueCommanderRoute } from './get-queue-commander';
import { getQueueStatsRoute } from './get-queue-stats';
import { getQueueTaskRoute } from './get-queue-task';
import { listQueueAttemptsRoute } from './list-queue-attempts';
import { listQueueLanesRoute } from './list-queue-lanes';
import { listQueueTaskChangesRoute } from './list-queue-task-changes';
import { listQueueTasksRoute } from './list-queue-tasks';
import { markQueueTasksReadRoute } from './mark-queue-tasks-read';
import { noteReservationFailureRoute } from './note-reservation-failure';
import { renewQueueTaskRoute } from './renew-queue-task';
import { renewQueueTasksRoute } from './renew-queue-tasks';
import { reserveQueueRetryRoute } from './reserve-queue-retry';
import { runQueueTaskRoute } from './run-queue-task';
import { scheduleQueueTaskRoute } from './schedule-queue-task';
import { setLaneLimitRoute } from './set-lane-limit';
import { settleQueueTaskRoute } from './settle-queue-task';
import { settleQueueTasksRoute } from './settle-queue-tasks';
import { updateQueueAttemptRoute } from './update-queue-attempt';

export const queueRoutes: readonly Route[] = [
  createQueueTaskRoute,
  createQueueTasksRoute,
  listQueueTasksRoute,
  listQueueTaskChangesRoute,
  getQueueTaskRoute,
  listQueueAttemptsRoute,
  explainQueueTaskRoute,
  claimQueueTasksRoute,
  renewQueueTasksRoute,
  settleQueueTasksRoute,
  renewQueueTaskRoute,
  settleQueueTaskRoute,
  runQueueTaskRoute,
  cancelQueueTaskRoute,
  scheduleQueueTaskRoute,
  updateQueueAttemptRoute,
  reserveQueueRetryRoute,
  activateQueueRetryRoute,
  noteReservationFailureRoute,
  markQueueTasksReadRoute,
  getQueueStatsRoute,
  getQueueCommanderRoute,
  listQueueLanesRoute,
  setLaneLimitRoute,
];
