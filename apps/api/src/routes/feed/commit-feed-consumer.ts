import { CommitFeedConsumer, CommittedFeedConsumer } from '@runplane/contracts';
import { commitFeedConsumer } from '@runplane/outbox';
import type { Route } from '..';
import { FeedConsumerParams } from '../../http/schemas';

export const commitFeedConsumerRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/feed/consumers/:name/commit',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'commitFeedConsumer',
      summary: 'Move a registered reader on from where it began, or say that it is alive',
      description: 'A compare-and-set: 409 feed_consumer_moved names the cursor as it is.',
      tags: ['feed'],
      params: FeedConsumerParams,
      body: CommitFeedConsumer,
      response: { 200: CommittedFeedConsumer },
    },
    handler: (request) => commitFeedConsumer(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
