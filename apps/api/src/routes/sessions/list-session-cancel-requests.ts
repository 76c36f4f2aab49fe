import { CancelRequestPage, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { listSessionCancelRequests } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

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
      querystring: z.strictObject({
        cursor: z.string().max(2_000).optional(),
        limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
      }),
      response: { 200: CancelRequestPage },
    },
    handler: (request) => listSessionCancelRequests(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
