import { ActivatedQueueRetry, ActivateQueueRetry } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { activateQueueRetry } from '@runplane/queue';
import type { Route } from '..';
import { TaskAttemptParams } from '../../http/schemas';

export const activateQueueRetryRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/retries/:attemptId/activate',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'activateQueueRetry',
      summary: 'Begin a reserved retry, or record that it failed',
      description: 'Repeat as you like: the same content is answered with `activated: false`.',
      tags: ['queue'],
      params: TaskAttemptParams,
      body: ActivateQueueRetry,
      response: { 200: ActivatedQueueRetry },
    },
    handler: (request) =>
      inTransaction(db, (tx) => activateQueueRetry(tx, { tenantId: request.credential.tenantId, ...request.params, ...request.body })),
  });
};
