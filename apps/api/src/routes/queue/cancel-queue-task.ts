import { CancelledQueueTask, CancelQueueTask } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { cancelQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const cancelQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/cancel',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'cancelQueueTask',
      summary: 'Cancel a task and stop whatever works on it',
      description:
        'The task ends now, a reserved retry with it; a worker that holds it is refused from now on, its run is asked to stop. Repeat as you like.',
      tags: ['queue'],
      params: TaskParams,
      body: CancelQueueTask,
      response: { 200: CancelledQueueTask },
    },
    handler: (request) => {
      const { tenantId, keyId } = request.credential;
      return inTransaction(db, (tx) => cancelQueueTask(tx, { tenantId, ...request.params, ...request.body, requestedBy: keyId }));
    },
  });
};
