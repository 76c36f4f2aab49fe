import type { Route } from '..';
import { admitTurnRoute } from './admit-turn';
import { explainSessionRoute } from './explain-session';
import { getSessionRoute } from './get-session';
import { listSessionOutputRoute } from './list-session-output';
import { listSessionTraceRoute } from './list-session-trace';

export const sessionRoutes: readonly Route[] = [
  admitTurnRoute,
  getSessionRoute,
  explainSessionRoute,
  listSessionTraceRoute,
  listSessionOutputRoute,
];
