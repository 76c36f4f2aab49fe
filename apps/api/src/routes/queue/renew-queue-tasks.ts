import { ClaimVerdicts, RenewQueueTasks } from '@runplane/contracts';
import { renewQueueTasks } from '@runplane/queue';
import type { Route } from '..';

export const renewQueueTasksRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/claims/renew',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'renewQueueTasks',
      summary: 'Prolong claims, each by its epoch',
      description: 'A verdict for each: what is lost of one does not touch the others.',
      tags: ['queue'],
      body: RenewQueueTasks,
      response: { 200: ClaimVerdicts },
    },
    handler: async (request) => ({ claims: await renewQueueTasks(db, { tenantId: request.credential.tenantId, ...request.body }) }),
  });
};
