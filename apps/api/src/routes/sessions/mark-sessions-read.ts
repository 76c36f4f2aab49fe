import { MarkedSessions, MarkSessionsRead } from '@runplane/contracts';
import { markSessionsRead } from '@runplane/sessions';
import type { Route } from '..';

export const markSessionsReadRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/session-reads',
    config: { access: ['sessions:read', 'sessions:write'] },
    schema: {
      operationId: 'markSessionsRead',
      summary: 'Note that a reader has seen several sessions, or all of them, as they are now',
      description: 'Ids that are no sessions come back in `unknown`; the others are marked all the same.',
      tags: ['sessions'],
      body: MarkSessionsRead,
      response: { 200: MarkedSessions },
    },
    handler: (request) => markSessionsRead(db, { tenantId: request.credential.tenantId, ...request.body }),
  });
};
