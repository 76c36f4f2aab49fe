import { ReserveRunnerSlot, RunnerSlot } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { reserveRunnerSlot } from '@runplane/runs';
import type { Route } from '..';

export const reserveRunnerSlotRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runner-slots',
    config: { access: ['runner'] },
    schema: {
      operationId: 'reserveRunnerSlot',
      summary: 'Ask for a place to make a runner in',
      description: 'Reserve, make the runner, confirm. With every place taken: 409 capacity_reached. The key is the tenant’s own.',
      tags: ['slots'],
      body: ReserveRunnerSlot,
      response: { 201: RunnerSlot },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      return reply.code(201).send(await inTransaction(db, (tx) => reserveRunnerSlot(tx, { tenantId, ...request.body })));
    },
  });
};
