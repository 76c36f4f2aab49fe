import { SessionResourceRun } from '@runplane/contracts';
import { getLatestSessionResourceRun } from '@runplane/runs';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const getResourceRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/resource-run',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSessionResourceRun',
      summary: 'Read the newest run of a session that has a resource bundle',
      tags: ['sessions'],
      params: SessionParams,
      response: { 200: SessionResourceRun },
    },
    handler: async (request) => ({
      run: await getLatestSessionResourceRun(db, { tenantId: request.credential.tenantId, ...request.params }),
    }),
  });
};
