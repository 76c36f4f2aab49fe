import { Runner } from '@runplane/contracts';
import { heartbeatRunner } from '@runplane/runs';
import type { Route } from '..';
import { RunnerParams } from '../../http/schemas';

export const heartbeatRunnerRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runners/:runnerId/heartbeat',
    config: { access: ['runner'] },
    schema: {
      operationId: 'heartbeatRunner',
      summary: 'Say that a runner lives, apart from any run',
      description: 'Renewing the lease of a run says as much. An unknown runner is 404 runner_not_found: register it again.',
      tags: ['runner'],
      params: RunnerParams,
      response: { 200: Runner },
    },
    handler: (request) => heartbeatRunner(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
