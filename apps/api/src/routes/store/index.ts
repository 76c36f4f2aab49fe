import type { Route } from '..';
import { explainStoreFeedRoute } from './explain-store-feed';
import { getDispatchStatusRoute } from './get-dispatch-status';
import { getHealthRoute } from './get-health';
import { getMigrationContractRoute } from './get-migration-contract';
import { getRebuildStatusRoute } from './get-rebuild-status';
import { getStoreFeedStatusRoute } from './get-store-feed-status';

export const storeRoutes: readonly Route[] = [
  getHealthRoute,
  getMigrationContractRoute,
  getDispatchStatusRoute,
  getRebuildStatusRoute,
  getStoreFeedStatusRoute,
  explainStoreFeedRoute,
];
