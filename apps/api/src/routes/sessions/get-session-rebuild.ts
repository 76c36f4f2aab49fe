import { SessionRebuild } from '@runplane/contracts';
import { getSessionRebuild } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const getSessionRebuildRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/rebuild',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSessionRebuild',
      summary: 'Say whether the views of a session are as its log says, and how far a rebuild of them is',
      tags: ['sessions'],
      params: SessionParams,
      response: { 200: SessionRebuild },
    },
    handler: (request) => getSessionRebuild(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
