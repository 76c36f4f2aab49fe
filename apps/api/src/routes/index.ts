import type { App, RouteDeps } from '../app';
import { adminRoutes } from './admin';
import { backendRoutes } from './backends';
import { commandRoutes } from './commands';
import { eventRoutes } from './events';
import { feedRoutes } from './feed';
import { jobRoutes } from './jobs';
import { queueRoutes } from './queue';
import { relayRoutes } from './relay';
import { requestRoutes } from './requests';
import { runnerRoutes } from './runner';
import { runRoutes } from './runs';
import { serviceRoutes } from './service';
import { sessionCopyRoutes } from './session-copies';
import { sessionLogRoutes } from './session-log';
import { sessionViewRoutes } from './session-views';
import { sessionRoutes } from './sessions';
import { slotRoutes } from './slots';
import { storeRoutes } from './store';
import { submissionRoutes } from './submissions';

/** Adds one route. */
export type Route = (app: App, deps: RouteDeps) => void;

const V1: readonly Route[] = [
  ...runRoutes,
  ...commandRoutes,
  ...eventRoutes,
  ...sessionRoutes,
  ...sessionLogRoutes,
  ...sessionCopyRoutes,
  ...sessionViewRoutes,
  ...submissionRoutes,
  ...requestRoutes,
  ...runnerRoutes,
  ...jobRoutes,
  ...slotRoutes,
  ...backendRoutes,
  ...queueRoutes,
  ...feedRoutes,
  ...relayRoutes,
  ...storeRoutes,
  ...adminRoutes,
];

export function registerRoutes(app: App, deps: RouteDeps): void {
  app.register(
    async (v1: App) => {
      for (const route of V1) route(v1, deps);
    },
    { prefix: '/v1' },
  );
  app.register(async (root: App) => {
    for (const route of serviceRoutes) route(root, deps);
  });
}
