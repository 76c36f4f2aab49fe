import { QueueCommander } from '@runplane/contracts';
import { getQueueCommander } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { queueName, readerId } from '../../http/schemas';

export const getQueueCommanderRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/commander',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'getQueueCommander',
      summary: 'What wants a look: open, failed, blocked or unread tasks',
      description: 'A reader’s unread tasks come first, then by priority and age; twenty of them, with the numbers.',
      tags: ['queue'],
      querystring: z.strictObject({ queue: queueName, readerId }),
      response: { 200: QueueCommander },
    },
    handler: (request) => getQueueCommander(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
