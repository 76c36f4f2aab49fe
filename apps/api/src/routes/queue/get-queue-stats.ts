import { QueueStats } from '@runplane/contracts';
import { getQueueStats } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { queueName } from '../../http/schemas';

export const getQueueStatsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/stats',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'getQueueStats',
      summary: 'Numbers of the tasks of a queue, or of all',
      tags: ['queue'],
      querystring: z.strictObject({ queue: queueName }),
      response: { 200: QueueStats },
    },
    handler: (request) => getQueueStats(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
