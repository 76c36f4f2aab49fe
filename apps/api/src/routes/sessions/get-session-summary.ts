import { SessionSummary } from '@runplane/contracts';
import { getSessionSummary } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { readerId, SessionParams } from '../../http/schemas';

export const getSessionSummaryRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/summary',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSessionSummary',
      summary: 'Read a session as lists show it, its last activity up to the newest event of its active run',
      tags: ['sessions'],
      params: SessionParams,
      querystring: z.strictObject({ readerId }),
      response: { 200: SessionSummary },
    },
    handler: (request) => getSessionSummary(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
