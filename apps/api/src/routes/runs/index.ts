import type { Route } from '..';
import { cancelRunRoute } from './cancel-run';
import { createRunRoute } from './create-run';
import { createRunWithIdRoute } from './create-run-with-id';
import { deleteRunRoute } from './delete-run';
import { explainRunRoute } from './explain-run';
import { getRunFacetsRoute } from './get-run-facets';
import { getRunResultRoute } from './get-run-result';
import { getRunRoute } from './get-run';
import { listCancelRequestsRoute } from './list-cancel-requests';
import { listRunsRoute } from './list-runs';

export const runRoutes: readonly Route[] = [
  createRunRoute,
  createRunWithIdRoute,
  listRunsRoute,
  getRunFacetsRoute,
  getRunRoute,
  getRunResultRoute,
  explainRunRoute,
  cancelRunRoute,
  deleteRunRoute,
  listCancelRequestsRoute,
];
