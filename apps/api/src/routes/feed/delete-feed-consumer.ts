import { DeletedFeedConsumer } from '@runplane/contracts';
import { deleteFeedConsumer } from '@runplane/outbox';
import type { Route } from '..';
import { FeedConsumerParams } from '../../http/schemas';

export const deleteFeedConsumerRoute: Route = (app, { db }) => {
  app.route({
    method: 'DELETE',
    url: '/feed/consumers/:name',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'deleteFeedConsumer',
      summary: 'Forget a registered reader of the feed',
      tags: ['feed'],
      params: FeedConsumerParams,
      response: { 200: DeletedFeedConsumer },
    },
    handler: (request) => deleteFeedConsumer(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
