import { UpdatedQueueAttempt, UpdateQueueAttempt } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { updateQueueAttempt } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams } from '../../http/schemas';

export const updateQueueAttemptRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/attempts',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'updateQueueAttempt',
      summary: 'Report an attempt of a dispatcher of your own',
      description:
        'Begins an attempt, moves it on or ends it, and the task with it, where the task is still at the version that the call names.',
      tags: ['queue'],
      params: TaskParams,
      body: UpdateQueueAttempt,
      response: { 200: UpdatedQueueAttempt },
    },
    handler: (request) =>
      inTransaction(db, (tx) => updateQueueAttempt(tx, { tenantId: request.credential.tenantId, ...request.params, ...request.body })),
  });
};
