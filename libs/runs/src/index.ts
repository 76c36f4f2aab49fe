// The door of libs/runs: runs, commands, run events, admission, claims, cancel, dispatch and the sweepers.

export { ackCommand } from './ack-command';
export { acknowledgeCancel } from './acknowledge-cancel';
export { admitSteer } from './admit-steer';
export { admitTurn, type AdmitTurnInput } from './admit-turn';
export { appendRunSessionEvents } from './append-run-session-events';
export { appendRunEvents } from './append-run-events';
export { type ArchiveReceipt, type ArchiveSink } from './archive-sink';
export { getBackend, listBackends, putBackend, registerBackends, updateBackendHealth } from './backends';
export { requestApproval, requestInput, waitForRunApproval, waitForRunInput } from './ask-people';
export { cancelCommand } from './cancel-command';
export { cancelRun } from './cancel-run';
export { claimExpiredStorage } from './claim-expired-storage';
export { cancelSession } from './cancel-session';
export { deleteRun } from './delete-run';
export { deleteSession, type DeleteSessionInput } from './delete-session';
export { eraseDeletedOnce, type EraseDeleted, type ErasureReport } from './erase-deleted-once';
export { claimRun } from './claim-run';
export { RUN_ENDED } from './close-run';
export { collectStorageOnce, type StorageCollector } from './collect-storage';
export { createCommand } from './create-command';
export { createRun } from './create-run';
export {
  claimDispatchIntents,
  completeDispatchIntent,
  deferDispatchIntent,
  failExhaustedIntentsOnce,
  retryDispatchIntent,
  terminalizeDispatchIntent,
  type DispatchCompletion,
  type DispatchFailure,
} from './dispatch-intents';
export { dispatchOnce, type DispatchReport } from './dispatch-once';
export { getDispatchStatus } from './dispatch-status';
export { countRunEvents, listCommandEvents, listRunOutput, listSessionOutput, listSessionTrace } from './event-pages';
export { explainRun, explainSession } from './explain-run';
export { failUnclaimedJob } from './fail-unclaimed-job';
export { finishCommand } from './finish-command';
export { finishRun } from './finish-run';
export { createFolderCollector } from './folder-collector';
export { foldSessionActivityOnce } from './fold-session-activity';
export { createFolderArchive } from './folder-archive';
export { heartbeat } from './heartbeat';
export { createKubernetesLauncher, type KubernetesLauncher, type KubernetesLauncherOptions } from './kubernetes-launcher';
export { createLauncherByProfile } from './launcher-by-profile';
export {
  JobHidden,
  LaunchFailed,
  type JobState,
  type Launcher,
  type LaunchOptions,
  type LaunchRequest,
  type LaunchResult,
  type ListedJob,
  type ObservedJob,
  type RecordedJob,
} from './launcher';
export { listRuns } from './list-runs';
export { listCancelRequests, listSessionCancelRequests } from './list-cancel-requests';
export { createProcessLauncher, type ProcessLauncherOptions } from './process-launcher';
export { pruneParkedEventsOnce } from './prune-parked-events';
export { pruneCancelRequestsOnce, pruneIntentsOnce, pruneReadersOnce, pruneRunnersOnce } from './prune-finished';
export { PRUNE_ONCE } from './prune-once';
export { pruneRunEventsOnce, pruneRunsOnce } from './prune-runs';
export {
  getRunResult,
  listRunEvents,
  streamRunEvents,
  waitForRunEvents,
  waitForRunResult,
  type ReadRunEvents,
  type RunEventPage,
  type StreamItem,
} from './read-run-events';
export { getCommand, getDispatchIntent, getRun, listCommands } from './read-runs';
export { reconcileRunnerJobsOnce, type Reconciliation } from './reconcile-runner-jobs';
export { registerRunner } from './register-runner';
export { getRunner, heartbeatRunner, listRunners, pruneRunners } from './runners';
export { type RunnerKey } from './runner.sql';
export {
  retentionPass,
  type RetentionOfTenant,
  type RetentionPass,
  type RetentionPlaces,
  type RetentionReport,
  type TenantPass,
  type TenantResult,
} from './retention-pass';
export {
  archiveKeyOf,
  archiveTask,
  taskArchiveKeyOf,
  readArchive,
  readArchivedRun,
  type ArchivedRun,
  type ArchiveLine,
  type ArchiveScope,
} from './run-archive';
export {
  getRunnerJob,
  getRunnerJobByIdempotencyKey,
  listRunnerJobs,
  listRunnerJobsForReconciliation,
  mergeRunnerJobResult,
  saveRunnerJob,
  settleRunnerJobs,
  type ReconciliationJob,
} from './runner-jobs';
export { type JobKey } from './runner-job.sql';
export {
  confirmReservation,
  pruneReservationsOnce,
  releaseReservation,
  renewReservation,
  requireReservation,
  reserve,
  type ReserveOutcome,
} from './reservations';
export { resumeRetentionFences, withRunnerRetentionFence, type FencedRun, type RetentionAct, type RetentionFence } from './retention-fence';
export {
  confirmRunnerSlot,
  releaseRunnerSlot,
  renewRunnerSlot,
  reserveRunnerSlot,
  withRunnerSlot,
  type SlotScope,
  type WithRunnerSlot,
} from './runner-slots';
export { listEndedReservations, type EndedReservation, type Reservation, type ReservationKey } from './reservation.sql';
export { registerRunProbes } from './run-probe.sql';
export { compactRunCountsOnce, getRunFacets } from './run-facets';
export { runStream, type RunKey } from './run.sql';
export { createRuns } from './runs';
export { getLatestSessionResourceRun, getSessionSummary } from './session-summary';
export { cancelOverdueRunsOnce, failUnclaimedRunsOnce, sweepCancelDeadlinesOnce, sweepLostRunnersOnce, type Sweep } from './sweep';
export { waitForCommands } from './wait-for-commands';
