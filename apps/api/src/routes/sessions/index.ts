import type { Route } from '..';
import { admitTurnRoute } from './admit-turn';
import { explainSessionRoute } from './explain-session';
import { cancelSessionRoute } from './cancel-session';
import { getSessionRoute } from './get-session';
import { listSessionOutputRoute } from './list-session-output';
import { listSessionTraceRoute } from './list-session-trace';
import { listSessionCancelRequestsRoute } from './list-session-cancel-requests';

export const sessionRoutes: readonly Route[] = [
  admitTurnRoute,
  getSessionRoute,
  explainSessionRoute,
  listSessionTraceRoute,
  listSessionOutputRoute,
  cancelSessionRoute,
  listSessionCancelRequestsRoute,
];
