import { FeedConsumerList } from '@runplane/contracts';
import { listFeedConsumers } from '@runplane/outbox';
import type { Route } from '..';

export const listFeedConsumersRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/feed/consumers',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'listFeedConsumers',
      summary: 'List the registered readers of the tenant’s feed, and how far behind each is',
      tags: ['feed'],
      response: { 200: FeedConsumerList },
    },
    handler: (request) => listFeedConsumers(db, { tenantId: request.credential.tenantId }),
  });
};
