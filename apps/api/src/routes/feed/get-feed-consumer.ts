import { FeedConsumer } from '@runplane/contracts';
import { getFeedConsumer } from '@runplane/outbox';
import type { Route } from '..';
import { FeedConsumerParams } from '../../http/schemas';

export const getFeedConsumerRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/feed/consumers/:name',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'getFeedConsumer',
      summary: 'Say where a registered reader stands, and how far behind',
      tags: ['feed'],
      params: FeedConsumerParams,
      response: { 200: FeedConsumer },
    },
    handler: (request) => getFeedConsumer(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
