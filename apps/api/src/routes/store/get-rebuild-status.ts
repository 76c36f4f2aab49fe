import { RebuildStatus } from '@runplane/contracts';
import { getRebuildStatus } from '@runplane/sessions';
import type { Route } from '..';

export const getRebuildStatusRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/rebuilds',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getRebuildStatus',
      summary: 'Count the sessions of the tenant whose views wait to be built anew',
      tags: ['store'],
      response: { 200: RebuildStatus },
    },
    handler: (request) => getRebuildStatus(db, { tenantId: request.credential.tenantId }),
  });
};
