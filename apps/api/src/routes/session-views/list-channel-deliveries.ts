import { ChannelDeliveryList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListDeliveries } from '@runplane/contracts';
import { listChannelDeliveries } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = ListDeliveries.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listChannelDeliveriesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/channel-deliveries',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listChannelDeliveries',
      summary: "List the messages that go out through a session's channels",
      description:
        'With how each ended, and why it failed. Ended ones are kept for a time only. With `state` a page may be short and have a cursor.',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ChannelDeliveryList },
    },
    handler: (request) => listChannelDeliveries(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
