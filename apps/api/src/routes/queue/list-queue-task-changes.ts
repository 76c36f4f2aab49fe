import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, QueueTaskChanges } from '@runplane/contracts';
import { listQueueTaskChanges } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, readerId } from '../../http/schemas';

const Query = z.strictObject({
  after: z.string().default('start').meta({ description: 'A cursor, `start`, or `now`: behind the last change that is there' }),
  readerId,
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listQueueTaskChangesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/task-changes',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'listQueueTaskChanges',
      summary: 'Follow the changes of tasks',
      description:
        'Tasks in the order of their last changes, each as it is now. Whoever follows `cursor` sees the last version of every task that changes.',
      tags: ['queue'],
      querystring: Query,
      response: { 200: QueueTaskChanges },
    },
    handler: (request) => listQueueTaskChanges(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
