import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, QueueLaneList } from '@runplane/contracts';
import { listQueueLanes } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, queueName } from '../../http/schemas';

const Query = z.strictObject({
  queue: queueName,
  cursor: z.string().optional(),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listQueueLanesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/lanes',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'listQueueLanes',
      summary: 'List the lanes of queues with their limits',
      tags: ['queue'],
      querystring: Query,
      response: { 200: QueueLaneList },
    },
    handler: (request) => listQueueLanes(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
