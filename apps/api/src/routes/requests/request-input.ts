import { RequestedInput, RequestInput } from '@runplane/contracts';
import { createSessions } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const requestInputRoute: Route = (app, { db }) => {
  const sessions = createSessions(db);
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/input-requests',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'requestInput',
      summary: 'Ask people for input, as the holder of the session lease',
      description: 'With an id of your own a repeated call asks once.',
      tags: ['approvals'],
      params: SessionParams,
      body: RequestInput,
      response: { 200: RequestedInput, 201: RequestedInput },
    },
    handler: async (request, reply) => {
      const asked = await sessions.requestInput({ tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(asked.replayed ? 200 : 201).send(asked);
    },
  });
};
