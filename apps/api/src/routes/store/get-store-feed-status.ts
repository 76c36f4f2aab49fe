import { FeedStatus } from '@runplane/contracts';
import { getFeedStatus } from '@runplane/outbox';
import type { Route } from '..';

export const getStoreFeedStatusRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/store/feed',
    config: { access: ['operator'] },
    schema: {
      operationId: 'getStoreFeedStatus',
      summary: 'Say how the feed of all tenants is doing, and which transaction holds it back',
      tags: ['store'],
      response: { 200: FeedStatus },
    },
    handler: () => getFeedStatus(db, { tenantId: undefined, withTenants: false }),
  });
};
