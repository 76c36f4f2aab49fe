import { CopiedSession, ForkSession } from '@runplane/contracts';
import { forkSession } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const forkSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/fork',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'forkSession',
      summary: 'Make a session of its own from another one, as it was up to an event',
      description:
        'Events are copied under ids of the new session; the feed has only its first own one, `session/forked`. What is open in the copied part is closed in the fork; leases, claims and read marks are not copied. An id in use is 409 `session_exists`.',
      tags: ['session log'],
      params: SessionParams,
      body: ForkSession,
      response: { 201: CopiedSession },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      return reply.code(201).send(await forkSession(db, { tenantId, ...request.params, ...request.body }));
    },
  });
};
