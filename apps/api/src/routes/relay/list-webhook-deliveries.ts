import { DELIVERY_OUTCOMES, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, PartitionKey, WebhookDeliveryPage } from '@runplane/contracts';
import { listWebhookDeliveries } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, SinkParams } from '../../http/schemas';

const Query = z.strictObject({
  outcome: z.enum(DELIVERY_OUTCOMES).optional().meta({ description: 'Absent: any' }),
  key: PartitionKey.optional(),
  cursor: z.string().optional(),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listWebhookDeliveriesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/relay/sinks/:sink/deliveries',
    config: { access: ['operator'] },
    schema: {
      operationId: 'listWebhookDeliveries',
      summary: 'List what was posted to the endpoint of a webhook and what it answered, the newest first',
      description: 'Of the last seven days. A sink of another kind has none.',
      tags: ['relay'],
      params: SinkParams,
      querystring: Query,
      response: { 200: WebhookDeliveryPage },
    },
    handler: (request) => listWebhookDeliveries(db, { ...request.params, ...request.query }),
  });
};
