import { FeedConsumer, RewindFeedConsumer } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { rewindFeedConsumer } from '@runplane/outbox';
import type { Route } from '..';
import { FeedConsumerParams } from '../../http/schemas';

export const rewindFeedConsumerRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/feed/consumers/:name/rewind',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'rewindFeedConsumer',
      summary: 'Put a registered reader to another place, back or forwards',
      description: 'A process that reads under its name learns of it at its next commit, and goes on from there.',
      tags: ['feed'],
      params: FeedConsumerParams,
      body: RewindFeedConsumer,
      response: { 200: FeedConsumer },
    },
    handler: (request) => {
      const key = { tenantId: request.credential.tenantId, ...request.params };
      return inTransaction(db, (tx) => rewindFeedConsumer(tx, { ...key, ...request.body }));
    },
  });
};
