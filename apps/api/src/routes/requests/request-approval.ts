import { RequestApproval, RequestedApproval } from '@runplane/contracts';
import { createSessions } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const requestApprovalRoute: Route = (app, { db }) => {
  const sessions = createSessions(db);
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/approvals',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'requestApproval',
      summary: 'Ask people to approve a call, as the holder of the session lease',
      description: 'With an id of your own a repeated call asks once. The approval is good for these arguments and no others.',
      tags: ['approvals'],
      params: SessionParams,
      body: RequestApproval,
      response: { 200: RequestedApproval, 201: RequestedApproval },
    },
    handler: async (request, reply) => {
      const asked = await sessions.requestApproval({ tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(asked.replayed ? 200 : 201).send(asked);
    },
  });
};
