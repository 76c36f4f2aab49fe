import { Heartbeat, HeartbeatAnswer } from '@runplane/contracts';
import { heartbeat } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const heartbeatRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/heartbeat',
    config: { access: ['runner'] },
    schema: {
      operationId: 'heartbeat',
      summary: 'Prolong the lease and learn what is new',
      description: 'Every third of the lease. `stop: true` when the run has ended: put the tools down.',
      tags: ['runner'],
      params: RunParams,
      body: Heartbeat,
      response: { 200: HeartbeatAnswer },
    },
    handler: (request) => heartbeat(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
