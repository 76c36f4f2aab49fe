import { RenewedQueueTask, RenewQueueTask } from '@runplane/contracts';
import { renewQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const renewQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/renew',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'renewQueueTask',
      summary: 'Prolong a claim',
      tags: ['queue'],
      params: TaskParams,
      body: RenewQueueTask,
      response: { 200: RenewedQueueTask },
    },
    handler: (request) => renewQueueTask(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
