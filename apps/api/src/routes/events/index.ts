import type { Route } from '..';
import { listRunEventsRoute } from './list-run-events';
import { streamRunEventsRoute } from './stream-run-events';

export const eventRoutes: readonly Route[] = [listRunEventsRoute, streamRunEventsRoute];
