import { ClaimedQueueTasks, ClaimQueueTasksBody } from '@runplane/contracts';
import { claimQueueTasks, settleQueueTasks, waitForQueueTasks } from '@runplane/queue';
import type { Route } from '..';
import { sendClaims } from '../../http/claims';

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
    handler: async (request, reply) => {
      const { waitSeconds, ...claim } = request.body;
      const { tenantId } = request.credential;
      const wanted = { tenantId, ...claim };
      const waitMs = waitSeconds * 1000;
      const tasks =
        waitMs === 0
          ? await claimQueueTasks(db, wanted)
          : await waiters.poll(reply, waitMs, (signal) => waitForQueueTasks(db, { ...wanted, waitMs, signal }));
      return sendClaims(reply, tasks, {
        answer: { tasks },
        giveBack: (claimed) =>
          settleQueueTasks(db, { tenantId, settlements: claimed.map(({ taskId, epoch }) => ({ taskId, epoch, outcome: 'released' })) }),
      });
    },
  });
};
