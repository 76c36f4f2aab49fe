export type { ReceivedCommand } from './command-queue';
export { processWork, type ProcessWork } from './process-backend';
export { runRunner, type RunnerContext, type RunnerEnd, type RunnerOptions } from './run-runner';
export { CancelRequested, RunLost, RunnerStopping, TimeOver } from './stop-reasons';
