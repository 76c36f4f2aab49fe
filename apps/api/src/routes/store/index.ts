import type { Route } from '..';
import { getDispatchStatusRoute } from './get-dispatch-status';
import { getHealthRoute } from './get-health';
import { getMigrationContractRoute } from './get-migration-contract';

export const storeRoutes: readonly Route[] = [getHealthRoute, getMigrationContractRoute, getDispatchStatusRoute];
