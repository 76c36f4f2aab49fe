import type { Route } from '..';
import { admitTurnRoute } from './admit-turn';
import { explainSessionRoute } from './explain-session';
import { getSessionRoute } from './get-session';

export const sessionRoutes: readonly Route[] = [admitTurnRoute, getSessionRoute, explainSessionRoute];
