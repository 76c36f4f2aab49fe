import { CancelRequestPage } from '@runplane/contracts';
import { listCancelRequests } from '@runplane/runs';
import type { Route } from '..';
import { CursorPageQuery, RunParams } from '../../http/schemas';

export const listCancelRequestsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/cancel-requests',
    config: { access: ['runs:read', 'runner'] },
    schema: {
      operationId: 'listCancelRequests',
      summary: 'List the cancel requests of a run and how far each has come, oldest first',
      tags: ['runs'],
      params: RunParams,
      querystring: CursorPageQuery,
      response: { 200: CancelRequestPage },
    },
    handler: (request) => listCancelRequests(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
