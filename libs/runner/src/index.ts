export type { ReceivedCommand } from './command-queue';
export type { AskedCall, AskedQuestion } from './people';
export { processWork, type ProcessWork } from './process-backend';
export { WorkerStopping, WorkLost, type WorkContext, type WorkerOptions, type WorkerReport } from './claim-worker';
export { runQueueWorker, type QueueWorkerOptions, type TaskHandler, type TaskOutcome } from './queue-worker';
export { runRunner, type RunnerContext, type RunnerEnd, type RunnerOptions } from './run-runner';
export { CancelRequested, RunLost, RunnerStopping, TimeOver } from './stop-reasons';
export { runSubmissionWorker, type SubmissionHandler, type SubmissionOutcome, type SubmissionWorkerOptions } from './submission-worker';
