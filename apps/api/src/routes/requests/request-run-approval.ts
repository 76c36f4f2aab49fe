import { RequestApproval, RequestedApproval } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const requestRunApprovalRoute: Route = (app, { db }) => {
  const runs = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/approvals',
    config: { access: ['runner'] },
    schema: {
      operationId: 'requestRunApproval',
      summary: 'Ask people to approve a call, as the runner of a session’s open turn',
      description:
        'With an id of your own a repeated call asks once. The approval is good for these arguments and no others, and ends with the turn.',
      tags: ['approvals'],
      params: RunParams,
      body: RequestApproval,
      response: { 200: RequestedApproval, 201: RequestedApproval },
    },
    handler: async (request, reply) => {
      const asked = await runs.requestApproval({ tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(asked.replayed ? 200 : 201).send(asked);
    },
  });
};
