import { Runner } from '@runplane/contracts';
import { getRunner } from '@runplane/runs';
import type { Route } from '..';
import { RunnerParams } from '../../http/schemas';

export const getRunnerRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runners/:runnerId',
    config: { access: ['runs:read', 'runner'] },
    schema: {
      operationId: 'getRunner',
      summary: 'Read a runner',
      tags: ['runner'],
      params: RunnerParams,
      response: { 200: Runner },
    },
    handler: (request) => getRunner(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
