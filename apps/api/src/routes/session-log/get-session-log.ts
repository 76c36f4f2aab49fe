import { SessionLog } from '@runplane/contracts';
import { getSessionLog } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const getSessionLogRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/log',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSessionLog',
      summary: "Read a session's header, and where its log ends",
      tags: ['session log'],
      params: SessionParams,
      response: { 200: SessionLog },
    },
    handler: (request) => getSessionLog(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
