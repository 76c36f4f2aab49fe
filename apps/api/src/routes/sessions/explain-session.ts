import { SessionExplanation } from '@runplane/contracts';
import { explainSession } from '@runplane/runs';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const explainSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/why',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'explainSession',
      summary: 'Say why a session is free or busy, and why its run is not moving',
      tags: ['sessions'],
      params: SessionParams,
      response: { 200: SessionExplanation },
    },
    handler: (request) => explainSession(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
