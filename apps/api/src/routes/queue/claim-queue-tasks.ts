import { ClaimedQueueTasks, ClaimQueueTasksBody } from '@runplane/contracts';
import { waitForQueueTasks } from '@runplane/queue';
import type { Route } from '..';

export const claimQueueTasksRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'POST',
    url: '/queue/claims',
    config: { access: ['queue:write'], measured: 'waits' },
    schema: {
      operationId: 'claimQueueTasks',
      summary: 'Claim ready tasks of a queue, or wait for some',
      description:
        'Highest priority first, then oldest, of one lane or of all lanes that have room. Each claim has an epoch, which every later call about it names, and a lease: renew it, or the task goes to somebody else.',
      tags: ['queue'],
      body: ClaimQueueTasksBody,
      response: { 200: ClaimedQueueTasks },
    },
    handler: (request, reply) => {
      const { waitSeconds, ...claim } = request.body;
      const wanted = { tenantId: request.credential.tenantId, ...claim, waitMs: waitSeconds * 1000 };
      return waiters.poll(reply, wanted.waitMs, async (signal) => ({ tasks: await waitForQueueTasks(db, { ...wanted, signal }) }));
    },
  });
};
