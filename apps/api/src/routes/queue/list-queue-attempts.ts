import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, QueueAttemptList } from '@runplane/contracts';
import { listQueueAttempts } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { TaskParams, queryInt } from '../../http/schemas';

const Query = z.strictObject({ cursor: z.string().optional(), limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listQueueAttemptsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/tasks/:taskId/attempts',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'listQueueAttempts',
      summary: 'Read the attempts at a task, newest first',
      tags: ['queue'],
      params: TaskParams,
      querystring: Query,
      response: { 200: QueueAttemptList },
    },
    handler: (request) => listQueueAttempts(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
