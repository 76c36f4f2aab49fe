import { RunFacets } from '@runplane/contracts';
import { getRunFacets } from '@runplane/runs';
import type { Route } from '..';

export const getRunFacetsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/run-facets', // below /runs it would be a run's id
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'getRunFacets',
      summary: 'What runs can be filtered by, and how many there are in each state',
      description: 'Of all runs of the tenant, whatever a list is filtered by.',
      tags: ['runs'],
      response: { 200: RunFacets },
    },
    handler: (request) => getRunFacets(db, { tenantId: request.credential.tenantId }),
  });
};
