import { DispatchStatus } from '@runplane/contracts';
import { getDispatchStatus } from '@runplane/runs';
import type { Route } from '..';

export const getDispatchStatusRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/dispatch',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'getDispatchStatus',
      summary: 'Count the runs of the tenant that wait for a runner to be launched',
      tags: ['store'],
      response: { 200: DispatchStatus },
    },
    handler: (request) => getDispatchStatus(db, { tenantId: request.credential.tenantId }),
  });
};
