import { BackendList } from '@runplane/contracts';
import { listBackends } from '@runplane/runs';
import type { Route } from '..';

export const listBackendsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/backends',
    config: { access: ['runs:read', 'runner'] },
    schema: {
      operationId: 'listBackends',
      summary: 'List the registry of backend profiles',
      tags: ['backends'],
      response: { 200: BackendList },
    },
    handler: () => listBackends(db),
  });
};
