import { HeldSlot, ReleasedSlot } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { confirmRunnerSlot } from '@runplane/runs';
import type { Route } from '..';

export const confirmRunnerSlotRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runner-slots/confirm',
    config: { access: ['runner'] },
    schema: {
      operationId: 'confirmRunnerSlot',
      summary: 'End a creation: the runner is made',
      description: '409 reservation_lost: the lease ended before, and somebody else may have the place: the runner is one too many.',
      tags: ['slots'],
      body: HeldSlot,
      response: { 200: ReleasedSlot },
    },
    handler: async (request) => {
      const { tenantId } = request.credential;
      await inTransaction(db, (tx) => confirmRunnerSlot(tx, { tenantId, ...request.body }));
      return { released: true };
    },
  });
};
