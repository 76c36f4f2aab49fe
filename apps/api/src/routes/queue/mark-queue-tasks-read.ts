import { MarkedQueueTasks, MarkQueueTasksRead } from '@runplane/contracts';
import { markQueueTasksRead } from '@runplane/queue';
import type { Route } from '..';

export const markQueueTasksReadRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/reads',
    config: { access: ['queue:read', 'queue:write'] },
    schema: {
      operationId: 'markQueueTasksRead',
      summary: 'Note that a reader has seen tasks as they are now',
      description: 'Ids that are no tasks come back in `unknown`; the others are marked all the same.',
      tags: ['queue'],
      body: MarkQueueTasksRead,
      response: { 200: MarkedQueueTasks },
    },
    handler: (request) => markQueueTasksRead(db, { tenantId: request.credential.tenantId, ...request.body }),
  });
};
