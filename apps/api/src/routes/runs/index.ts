import type { Route } from '..';
import { cancelRunRoute } from './cancel-run';
import { createRunRoute } from './create-run';
import { createRunWithIdRoute } from './create-run-with-id';
import { explainRunRoute } from './explain-run';
import { getRunResultRoute } from './get-run-result';
import { getRunRoute } from './get-run';
import { listCancelRequestsRoute } from './list-cancel-requests';
import { listRunsRoute } from './list-runs';

export const runRoutes: readonly Route[] = [
  createRunRoute,
  createRunWithIdRoute,
  listRunsRoute,
  getRunRoute,
  getRunResultRoute,
  explainRunRoute,
  cancelRunRoute,
  listCancelRequestsRoute,
];
