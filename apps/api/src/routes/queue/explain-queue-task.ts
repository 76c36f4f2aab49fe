import { TaskExplanation } from '@runplane/contracts';
import { explainQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const explainQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/queue/tasks/:taskId/why',
    config: { access: ['queue:read'] },
    schema: {
      operationId: 'explainQueueTask',
      summary: 'Say why a task is where it is, and what moves it next',
      tags: ['queue'],
      params: TaskParams,
      response: { 200: TaskExplanation },
    },
    handler: (request) => explainQueueTask(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
