import type { Route } from '..';
import { admitSteerRoute } from './admit-steer';
import { admitTurnRoute } from './admit-turn';
import { deleteSessionRoute } from './delete-session';
import { explainSessionRoute } from './explain-session';
import { cancelSessionRoute } from './cancel-session';
import { getSessionRoute } from './get-session';
import { listSessionOutputRoute } from './list-session-output';
import { listSessionTraceRoute } from './list-session-trace';
import { listSessionCancelRequestsRoute } from './list-session-cancel-requests';
import { getResourceRunRoute } from './get-resource-run';
import { getSessionRebuildRoute } from './get-session-rebuild';
import { getSessionSummaryRoute } from './get-session-summary';
import { listExpiredStorageRoute } from './list-expired-storage';
import { listSessionChangesRoute } from './list-session-changes';
import { listSessionsRoute } from './list-sessions';
import { markSessionReadRoute } from './mark-session-read';
import { markSessionsReadRoute } from './mark-sessions-read';
import { markStorageEvictedRoute } from './mark-storage-evicted';
import { refreshSessionStorageRoute } from './refresh-session-storage';
import { renameSessionRoute } from './rename-session';
import { requestSessionRebuildRoute } from './request-session-rebuild';
import { upsertSessionRoute } from './upsert-session';

export const sessionRoutes: readonly Route[] = [
  admitTurnRoute,
  admitSteerRoute,
  getSessionRoute,
  explainSessionRoute,
  listSessionTraceRoute,
  listSessionOutputRoute,
  cancelSessionRoute,
  deleteSessionRoute,
  listSessionCancelRequestsRoute,
  upsertSessionRoute,
  getSessionSummaryRoute,
  listSessionsRoute,
  listSessionChangesRoute,
  renameSessionRoute,
  markSessionReadRoute,
  markSessionsReadRoute,
  getResourceRunRoute,
  refreshSessionStorageRoute,
  markStorageEvictedRoute,
  listExpiredStorageRoute,
  requestSessionRebuildRoute,
  getSessionRebuildRoute,
];
