import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, QUEUE_TASK_STATES, QueueTaskList } from '@runplane/contracts';
import { listQueueTasks } from '@runplane/queue';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, queueName, readerId } from '../../http/schemas';

const Query = z.strictObject({
  queue: queueName,
  state: z.enum(QUEUE_TASK_STATES).optional(),
  readerId,
  cursor: z.string().optional(),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listQueueTasksRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/tasks',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'listQueueTasks',
      summary: 'List tasks, highest priority first, then oldest',
      description: 'Without what the tasks are about: read one for that. No page misses or repeats a task that others change meanwhile.',
      tags: ['queue'],
      querystring: Query,
      response: { 200: QueueTaskList },
    },
    handler: (request) => listQueueTasks(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
