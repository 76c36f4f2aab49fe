import { FeedExplanation } from '@runplane/contracts';
import { explainFeed } from '@runplane/outbox';
import type { Route } from '..';

export const explainStoreFeedRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/store/feed/why',
    config: { access: ['operator'] },
    schema: {
      operationId: 'explainStoreFeed',
      summary: 'Say why readers of the feed see nothing new, and because of whom',
      tags: ['store'],
      response: { 200: FeedExplanation },
    },
    handler: () => explainFeed(db, { tenantId: undefined, withTenants: false }),
  });
};
