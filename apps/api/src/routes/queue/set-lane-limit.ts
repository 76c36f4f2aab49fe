import { QueueLane, SetLaneLimit } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { setLaneLimit } from '@runplane/queue';
import type { Route } from '..';

export const setLaneLimitRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/queue/lanes',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'setLaneLimit',
      summary: 'Set how many tasks of a lane, or of a queue, run at a time',
      description: 'What runs already counts and is not stopped.',
      tags: ['queue'],
      body: SetLaneLimit,
      response: { 200: QueueLane },
    },
    handler: (request) => inTransaction(db, (tx) => setLaneLimit(tx, { tenantId: request.credential.tenantId, ...request.body })),
  });
};
