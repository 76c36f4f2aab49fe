import { ChangedQueueTask, ScheduleQueueTask } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { scheduleQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const scheduleQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/schedule',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'scheduleQueueTask',
      summary: 'Put a pending task off, or let it start at once',
      tags: ['queue'],
      params: TaskParams,
      body: ScheduleQueueTask,
      response: { 200: ChangedQueueTask },
    },
    handler: (request) =>
      inTransaction(db, (tx) => scheduleQueueTask(tx, { tenantId: request.credential.tenantId, ...request.params, ...request.body })),
  });
};
