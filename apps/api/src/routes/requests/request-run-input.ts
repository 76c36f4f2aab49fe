import { RequestedInput, RequestInput } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const requestRunInputRoute: Route = (app, { db }) => {
  const runs = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/input-requests',
    config: { access: ['runner'] },
    schema: {
      operationId: 'requestRunInput',
      summary: 'Ask people for input, as the runner of a session’s open turn',
      description: 'With an id of your own a repeated call asks once. The request ends with the turn.',
      tags: ['approvals'],
      params: RunParams,
      body: RequestInput,
      response: { 200: RequestedInput, 201: RequestedInput },
    },
    handler: async (request, reply) => {
      const asked = await runs.requestInput({ tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(asked.replayed ? 200 : 201).send(asked);
    },
  });
};
