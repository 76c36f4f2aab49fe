import type { Route } from '..';
import { confirmRunnerSlotRoute } from './confirm-runner-slot';
import { releaseRunnerSlotRoute } from './release-runner-slot';
import { renewRunnerSlotRoute } from './renew-runner-slot';
import { reserveRunnerSlotRoute } from './reserve-runner-slot';

export const slotRoutes: readonly Route[] = [reserveRunnerSlotRoute, renewRunnerSlotRoute, confirmRunnerSlotRoute, releaseRunnerSlotRoute];
