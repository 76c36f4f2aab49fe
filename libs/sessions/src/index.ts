// The door of libs/sessions: the control record of sessions, lists, read marks and storage; their log, its lease and its views.

export { acceptSubmission, type AcceptSubmissionInput } from './accept-submission';
export { appendAsServer, type ServerAppend } from './append-as-server';
export { findAppend } from './append-replay';
export { LEASELESS_EVENT_TYPES } from './append-permission';
export { appendSessionEvents } from './append-session-events';
export { askForApproval, requestApproval } from './ask-approval';
export { askForInput, requestInput } from './ask-input';
export { cancelOpenRequests } from './cancel-open-requests';
export { closeOpenInSession, markSessionDeleted } from './close-session';
export { forkSession } from './copy/fork-session';
export { importSession } from './copy/import-session';
export { createSession, getSessionLog } from './create-session';
export { listErasable, type ErasurePlace } from './deletion.sql';
export { endSubmission, markSubmissionEnded, type EndSubmissionInput } from './end-submission';
export { markSubmissionsEnded, type ClaimedEnd } from './end-submissions';
export { eraseSessionRows, scrubSession } from './erase-session';
export { importSubmissions } from './import-submissions';
export { expireRequestsOnce } from './expire-requests-once';
export { listSessionChanges, type ListSessionChanges } from './list-session-changes';
export { listSessionLogs, type ListSessionLogs } from './list-session-logs';
export { listSessions, type ListSessions } from './list-sessions';
export { markSessionRead, markSessionsRead } from './mark-sessions-read';
export { deleteSilentReaders } from './read-cursor.sql';
export {
  assertApproved,
  getApproval,
  getInputRequest,
  listPendingApprovals,
  listPendingInputs,
  waitForApproval,
  waitForInput,
  type ListPending,
} from './read-requests';
export { enqueueTurn, findQueuedTurn, readQueuedTurn, type WaitingTurn } from './queued-turns';
export { callQueuedTurn, holdBackQueuedTurn } from './queued-turn.sql';
export {
  countUnfinishedSubmissions,
  getSubmission,
  getSubmissionReceipt,
  listUnfinishedSubmissions,
  type ListUnfinishedSubmissions,
  type SubmissionKey,
} from './read-submissions';
export { rebuildAllSessions, type RebuiltAll } from './rebuild/rebuild-all-sessions';
export { rebuildSession, type RebuildOptions, type RebuildSteps, type RebuiltSession } from './rebuild/rebuild-session';
export { rebuildStaleOnce, type RebuildReport, type StalePlaces } from './rebuild/rebuild-stale-once';
export { countStaleViews, getRebuildStatus, getSessionRebuild, requestSessionRebuild } from './rebuild/request-session-rebuild';
export { ALL_SUBMISSIONS, submissionStreams, TURN_QUEUED } from './projections/submission';
export { unfinishedOf } from './submission-rows.sql';
export { NO_SHADOW } from './rebuild/shadow-views.sql';
export { renameSession } from './rename-session';
export {
  listPendingApprovalsPage,
  listPendingInputsPage,
  requestProbes,
  type ApprovalKey,
  type InputRequestKey,
  type OpenRequestScope,
} from './requests.sql';
export { resolveApproval, resolveInput } from './resolve-requests';
export {
  adoptBoundary,
  assertBoundary,
  assertThere,
  ensureSession,
  getSession,
  requireSession,
  resolveSessionRef,
  sessionNotFound,
  type Boundary,
} from './session';
export { findSummary } from './session-list.sql';
export {
  assertStorageFree,
  confirmStorageEvicted,
  listGcExpiredSessions,
  markSessionStorageEvicted,
  refreshSessionStorage,
  releaseStorage,
} from './session-storage';
export {
  leaseExpiredStorage,
  listSharedStorage,
  returnStorageClaims,
  type CollectableKind,
  type ExpiredStorage,
  type StorageClaim,
} from './session-storage.sql';
export { storageHeldMs } from './session-decisions';
export { titleOfTurn } from './session-title';
export {
  findSession,
  foldActivity,
  lockSession,
  writeFeedNumber,
  writeLastRun,
  writeThread,
  writeTurnEnded,
  writeTurnStarted,
  writeTurnSteered,
  type SessionKey,
  type SessionRow,
} from './session.sql';
export { lockHead, type HeadRow } from './session-head.sql';
export { acquireSessionLease, releaseSessionLease, renewSessionLease, revokeSessionLease } from './session-lease';
export {
  loadSession,
  readSessionEvents,
  readSessionLines,
  streamSessionEvents,
  assertSameLife,
  type SessionLife,
  waitForSessionEvents,
  type LoadedSession,
} from './read-session-events';
export { sessionProbe, sessionStream } from './session-event.sql';
export { openSessionWriter, type SessionWriter, type SessionWriterOptions } from './session-writer';
export { createSessions } from './sessions';
export { upsertSession } from './upsert-session';
export { getContextNote, listContextHistory, listContextNotes, listContextWindows, searchContextHistory } from './views/context-views';
export { listChannelBindings, listChannelDeliveries } from './views/list-channel';
export { listProjections, listSessionProjections } from './views/list-projections';
export { pruneChannelsOnce, type PrunedChannels } from './views/prune-channels-once';
export { listRecoveryCandidates, readSnapshot } from './views/read-snapshot';
