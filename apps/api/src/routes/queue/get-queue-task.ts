import { QueueTask } from '@runplane/contracts';
import { getQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const getQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/tasks/:taskId',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'getQueueTask',
      summary: 'Read a task',
      tags: ['queue'],
      params: TaskParams,
      response: { 200: QueueTask },
    },
    handler: (request) => getQueueTask(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
