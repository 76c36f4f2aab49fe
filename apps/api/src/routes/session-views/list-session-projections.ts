import { ProjectedValueList } from '@runplane/contracts';
import { listSessionProjections } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const listSessionProjectionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/projections',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionProjections',
      summary: "Read the values of a session's projections",
      description: 'With the version of their rules, how far they have come, and why one is not kept up.',
      tags: ['session views'],
      params: SessionParams,
      response: { 200: ProjectedValueList },
    },
    handler: (request) => listSessionProjections(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
