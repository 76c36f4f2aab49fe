import { SinkStatus } from '@runplane/contracts';
import { getSinkStatus } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const getSinkRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/relay/sinks/:sink',
    config: { access: ['operator'] },
    schema: {
      operationId: 'getSink',
      summary: 'Say how one sink stands',
      tags: ['relay'],
      params: SinkParams,
      response: { 200: SinkStatus },
    },
    handler: (request) => getSinkStatus(db, request.params),
  });
};
