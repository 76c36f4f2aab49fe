// The door of libs/queue: tasks in named queues.

export { claimQueueTasks, waitForQueueTasks, type ClaimTasksInput } from './claim-queue-tasks';
export { createQueueTask, createQueueTasks } from './create-queue-tasks';
export { readyDueTasksOnce } from './ready-due-tasks';
export { renewQueueTask, renewQueueTasks, settleQueueTask, settleQueueTasks } from './settle-queue-tasks';
export { sweepQueueLeasesOnce } from './sweep-queue-leases';
