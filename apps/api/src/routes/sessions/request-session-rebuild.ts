import { SessionRebuild } from '@runplane/contracts';
import { requestSessionRebuild } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const requestSessionRebuildRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/rebuild',
    config: { access: ['admin'] },
    schema: {
      operationId: 'requestSessionRebuild',
      summary: 'Ask for the views of a session to be built anew from its log',
      description:
        'It is done in the background: readers see the old views until the new ones are whole, and appends go on. One under way goes on; one that has failed too often is tried again.',
      tags: ['sessions'],
      params: SessionParams,
      response: { 202: SessionRebuild },
    },
    handler: async (request, reply) => {
      const rebuild = await requestSessionRebuild(db, { tenantId: request.credential.tenantId, ...request.params });
      return reply.status(202).send(rebuild);
    },
  });
};
