import type { Route } from '..';
import { countRunEventsRoute } from './count-run-events';
import { listCommandEventsRoute } from './list-command-events';
import { listRunEventsRoute } from './list-run-events';
import { listRunOutputRoute } from './list-run-output';
import { streamRunEventsRoute } from './stream-run-events';

export const eventRoutes: readonly Route[] = [
  listRunEventsRoute,
  streamRunEventsRoute,
  countRunEventsRoute,
  listRunOutputRoute,
  listCommandEventsRoute,
];
