import { SinkStatusList } from '@runplane/contracts';
import { getRelayStatus } from '@runplane/outbox';
import type { Route } from '..';

export const listSinksRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/relay/sinks',
    config: { access: ['operator'] },
    schema: {
      operationId: 'listSinks',
      summary: 'Say how every sink of the relay stands',
      description:
        'Backlog, age of the oldest event that a sink has not got, blocked keys. One statement, whose cost does not grow with the backlog.',
      tags: ['relay'],
      response: { 200: SinkStatusList },
    },
    handler: () => getRelayStatus(db),
  });
};
