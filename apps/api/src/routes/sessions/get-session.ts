import { Session } from '@runplane/contracts';
import { getSession } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const getSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId',
    config: { access: ['sessions:read'] },
    schema: { operationId: 'getSession', summary: 'Read a session', tags: ['sessions'], params: SessionParams, response: { 200: Session } },
    handler: (request) => getSession(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
