import type { Route } from '..';
import { listBackendsRoute } from './list-backends';
import { putBackendRoute } from './put-backend';

export const backendRoutes: readonly Route[] = [listBackendsRoute, putBackendRoute];
