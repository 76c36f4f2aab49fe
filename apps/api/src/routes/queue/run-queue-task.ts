import { RunningQueueTask, RunQueueTask } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { runQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const runQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/run',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'runQueueTask',
      summary: 'Run a task as a run',
      description:
        'Makes the run with its turn and the link from the attempt, together or not at all; from then on the run decides the task. A task bound to a session is a turn of that session.',
      tags: ['queue'],
      params: TaskParams,
      body: RunQueueTask,
      response: { 200: RunningQueueTask },
    },
    handler: (request) =>
      inTransaction(db, (tx) => runQueueTask(tx, { tenantId: request.credential.tenantId, ...request.params, ...request.body })),
  });
};
