import { CreatedSession, CreateSession } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { createSession } from '@runplane/sessions';
import type { Route } from '..';

export const createSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'createSession',
      summary: 'Make a session with an empty log',
      description: 'Its header names the session. The same header again finds it; another one is refused.',
      tags: ['session log'],
      body: CreateSession,
      response: { 200: CreatedSession, 201: CreatedSession },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const created = await inTransaction(db, (tx) => createSession(tx, { tenantId, ...request.body }));
      return reply.code(created.replayed ? 200 : 201).send(created);
    },
  });
};
