import { BLOCKED_KEY_STATES, BlockedKeyPage, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, PartitionKey } from '@runplane/contracts';
import { listBlockedKeys } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, SinkParams } from '../../http/schemas';

const Query = z.strictObject({
  state: z.enum(BLOCKED_KEY_STATES).optional().meta({ description: 'Absent: both' }),
  key: PartitionKey.optional(),
  cursor: z.string().optional(),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listBlockedKeysRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/relay/sinks/:sink/keys',
    config: { access: ['operator'] },
    schema: {
      operationId: 'listBlockedKeys',
      summary: 'List the keys that a sink does not take, with the event at which each waits',
      tags: ['relay'],
      params: SinkParams,
      querystring: Query,
      response: { 200: BlockedKeyPage },
    },
    handler: (request) => listBlockedKeys(db, { ...request.params, ...request.query }),
  });
};
