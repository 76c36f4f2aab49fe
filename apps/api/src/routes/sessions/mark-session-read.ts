import { MarkSessionRead, SessionReadCursor } from '@runplane/contracts';
import { markSessionRead } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const markSessionReadRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/read',
    config: { access: ['sessions:read', 'sessions:write'] },
    schema: {
      operationId: 'markSessionRead',
      summary: 'Note that a reader has seen a session as it is now',
      tags: ['sessions'],
      params: SessionParams,
      body: MarkSessionRead,
      response: { 200: SessionReadCursor },
    },
    handler: (request) => markSessionRead(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
