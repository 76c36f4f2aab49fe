import { SettledQueueTask, SettleQueueTask } from '@runplane/contracts';
import { settleQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const settleQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/settle',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'settleQueueTask',
      summary: 'End a claim with its result, or give the task back',
      description: 'Repeat as you like: the same end under the same epoch is answered with it.',
      tags: ['queue'],
      params: TaskParams,
      body: SettleQueueTask,
      response: { 200: SettledQueueTask },
    },
    handler: (request) => settleQueueTask(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
