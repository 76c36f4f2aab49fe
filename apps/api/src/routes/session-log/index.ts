import type { Route } from '..';
import { acquireSessionLeaseRoute } from './acquire-session-lease';
import { appendRunSessionEventsRoute } from './append-run-session-events';
import { appendSessionEventsRoute } from './append-session-events';
import { createSessionRoute } from './create-session';
import { getSessionLogRoute } from './get-session-log';
import { listSessionLogsRoute } from './list-session-logs';
import { readSessionEventsRoute } from './read-session-events';
import { releaseSessionLeaseRoute } from './release-session-lease';
import { renewSessionLeaseRoute } from './renew-session-lease';
import { revokeSessionLeaseRoute } from './revoke-session-lease';
import { streamSessionEventsRoute } from './stream-session-events';

export const sessionLogRoutes: readonly Route[] = [
  createSessionRoute,
  listSessionLogsRoute,
  getSessionLogRoute,
  appendSessionEventsRoute,
  appendRunSessionEventsRoute,
  readSessionEventsRoute,
  streamSessionEventsRoute,
  acquireSessionLeaseRoute,
  renewSessionLeaseRoute,
  releaseSessionLeaseRoute,
  revokeSessionLeaseRoute,
];
