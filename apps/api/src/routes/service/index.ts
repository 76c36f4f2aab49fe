import type { Route } from '..';
import { healthzRoute } from './healthz';
import { metricsRoute } from './metrics';
import { openapiRoute } from './openapi';
import { readyzRoute } from './readyz';

export const serviceRoutes: readonly Route[] = [healthzRoute, readyzRoute, metricsRoute, openapiRoute];
