import type { Route } from '..';
import { admitTurnRoute } from './admit-turn';
import { getSessionRoute } from './get-session';

export const sessionRoutes: readonly Route[] = [admitTurnRoute, getSessionRoute];
