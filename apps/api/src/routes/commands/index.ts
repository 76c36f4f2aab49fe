import type { Route } from '..';
import { cancelCommandRoute } from './cancel-command';
import { createCommandRoute } from './create-command';
import { getCommandRoute } from './get-command';
import { getDispatchIntentRoute } from './get-dispatch-intent';
import { listCommandsRoute } from './list-commands';

export const commandRoutes: readonly Route[] = [
  createCommandRoute,
  listCommandsRoute,
  getCommandRoute,
  getDispatchIntentRoute,
  cancelCommandRoute,
];
