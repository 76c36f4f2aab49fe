import type { Route } from '..';
import { getDispatchStatusRoute } from './get-dispatch-status';
import { getHealthRoute } from './get-health';
import { getMigrationContractRoute } from './get-migration-contract';
import { getRebuildStatusRoute } from './get-rebuild-status';

export const storeRoutes: readonly Route[] = [getHealthRoute, getMigrationContractRoute, getDispatchStatusRoute, getRebuildStatusRoute];
