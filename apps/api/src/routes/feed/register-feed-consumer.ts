import { RegisteredFeedConsumer, RegisterFeedConsumer } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { registerFeedConsumer } from '@runplane/outbox';
import type { Route } from '..';
import { FeedConsumerParams } from '../../http/schemas';

export const registerFeedConsumerRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/feed/consumers/:name',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'registerFeedConsumer',
      summary: 'Register a reader of the feed, whose place the store keeps',
      description: 'Retention waits for it while it is heard of. One that is there stays as it is: 200 with `created: false`.',
      tags: ['feed'],
      params: FeedConsumerParams,
      body: RegisterFeedConsumer,
      response: { 200: RegisteredFeedConsumer, 201: RegisteredFeedConsumer },
    },
    handler: async (request, reply) => {
      const key = { tenantId: request.credential.tenantId, ...request.params };
      const registered = await inTransaction(db, (tx) => registerFeedConsumer(tx, { ...key, ...request.body }));
      return reply.code(registered.created ? 201 : 200).send(registered);
    },
  });
};
