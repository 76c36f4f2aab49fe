import { ClaimVerdicts, SettleQueueTasks } from '@runplane/contracts';
import { settleQueueTasks } from '@runplane/queue';
import type { Route } from '..';

export const settleQueueTasksRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/claims/settle',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'settleQueueTasks',
      summary: 'End claims with their results, or give them back',
      description:
        'A verdict for each. `released` gives a task back: told without a failure the try does not count, told with one it comes again after a back-off, and the last try fails the task.',
      tags: ['queue'],
      body: SettleQueueTasks,
      response: { 200: ClaimVerdicts },
    },
    handler: async (request) => ({ claims: await settleQueueTasks(db, { tenantId: request.credential.tenantId, ...request.body }) }),
  });
};
