import { UpsertedSession, UpsertSession } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { upsertSession } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const upsertSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/sessions/:sessionId',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'upsertSession',
      summary: 'Make a session, or change it',
      description: 'Project and backend profile never change. What the body leaves out stays, null clears. Repeat as you like.',
      tags: ['sessions'],
      params: SessionParams,
      body: UpsertSession,
      response: { 200: UpsertedSession, 201: UpsertedSession },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const upserted = await inTransaction(db, (tx) => upsertSession(tx, { tenantId, ...request.params, session: request.body }));
      return reply.code(upserted.created ? 201 : 200).send(upserted);
    },
  });
};
