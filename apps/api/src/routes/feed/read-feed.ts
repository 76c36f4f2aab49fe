import { FeedPage, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { waitForFeed } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';
import { feedFilter, feedStart, queryInt, toFeedFilter, wait } from '../../http/schemas';

const Query = z.strictObject({
  ...feedFilter,
  after: feedStart.default('start'),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
  wait,
});

export const readFeedRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/feed',
    config: { access: ['feed:read'], measured: 'waits' },
    schema: {
      operationId: 'readFeed',
      summary: 'Read every event of the tenant, in feed order, or wait for the next',
      description:
        'Follow `cursor`: each event comes once, and a filtered page moves over the others. 410 cursor_expired names the oldest cursor that is left.',
      tags: ['feed'],
      querystring: Query,
      response: { 200: FeedPage },
    },
    handler: (request, reply) => {
      const { after, limit, wait: seconds, ...filter } = request.query;
      const page = { tenantId: request.credential.tenantId, after, limit, filter: toFeedFilter(filter), waitMs: seconds * 1000 };
      return waiters.poll(reply, page.waitMs, (signal) => waitForFeed(db, { ...page, signal }));
    },
  });
};
