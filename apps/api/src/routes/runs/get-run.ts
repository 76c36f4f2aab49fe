import { Run } from '@runplane/contracts';
import { getRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const getRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId',
    config: { access: ['runs:read', 'runner'] },
    schema: { operationId: 'getRun', summary: 'Read a run', tags: ['runs'], params: RunParams, response: { 200: Run } },
    handler: (request) => getRun(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
