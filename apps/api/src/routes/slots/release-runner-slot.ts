import { HeldSlot, ReleasedSlot } from '@runplane/contracts';
import { releaseRunnerSlot } from '@runplane/runs';
import type { Route } from '..';

export const releaseRunnerSlotRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runner-slots/release',
    config: { access: ['runner'] },
    schema: {
      operationId: 'releaseRunnerSlot',
      summary: 'Give a place back: nothing was made',
      tags: ['slots'],
      body: HeldSlot,
      response: { 200: ReleasedSlot },
    },
    handler: (request) => releaseRunnerSlot(db, { tenantId: request.credential.tenantId, ...request.body }),
  });
};
