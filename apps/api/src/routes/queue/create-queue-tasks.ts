import { CreatedQueueTasks, CreateQueueTasks } from '@runplane/contracts';
import { createQueueTasks } from '@runplane/queue';
import type { Route } from '..';

export const createQueueTasksRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/task-batches',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'createQueueTasks',
      summary: 'Put up to 100 tasks into queues, all or none',
      description: 'Each task may have an `idempotencyKey` of its own.',
      tags: ['queue'],
      body: CreateQueueTasks,
      response: { 200: CreatedQueueTasks },
    },
    handler: (request) => createQueueTasks(db, { tenantId: request.credential.tenantId, ...request.body }),
  });
};
