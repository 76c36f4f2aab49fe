import { CancelRequestPage } from '@runplane/contracts';
import { listSessionCancelRequests } from '@runplane/runs';
import type { Route } from '..';
import { CursorPageQuery, SessionParams } from '../../http/schemas';

export const listSessionCancelRequestsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/cancel-requests',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionCancelRequests',
      summary: 'List everybody who asked to stop something in a session, newest first',
      tags: ['sessions'],
      params: SessionParams,
      querystring: CursorPageQuery,
      response: { 200: CancelRequestPage },
    },
    handler: (request) => listSessionCancelRequests(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
