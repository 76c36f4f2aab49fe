import { RenewedSlot, RenewRunnerSlot } from '@runplane/contracts';
import { renewRunnerSlot } from '@runplane/runs';
import type { Route } from '..';

export const renewRunnerSlotRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runner-slots/renew',
    config: { access: ['runner'] },
    schema: {
      operationId: 'renewRunnerSlot',
      summary: 'Hold a place for longer',
      tags: ['slots'],
      body: RenewRunnerSlot,
      response: { 200: RenewedSlot },
    },
    handler: (request) => renewRunnerSlot(db, { tenantId: request.credential.tenantId, ...request.body }),
  });
};
