import { FeedStatus } from '@runplane/contracts';
import { getFeedStatus } from '@runplane/outbox';
import type { Route } from '..';

export const getFeedStatusRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/feed/status',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'getFeedStatus',
      summary: 'Say what of the tenant readers cannot see yet, and how far behind its registered readers are',
      tags: ['feed'],
      response: { 200: FeedStatus },
    },
    handler: (request) => getFeedStatus(db, { tenantId: request.credential.tenantId }),
  });
};
