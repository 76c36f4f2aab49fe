import { ChangedSink } from '@runplane/contracts';
import { createRelayControl } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const disableSinkRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/relay/sinks/:sink/disable',
    config: { access: ['operator'] },
    schema: {
      operationId: 'disableSink',
      summary: 'Stop all relaying to a sink',
      description: 'At once. A disabled sink holds back no retention.',
      tags: ['relay'],
      params: SinkParams,
      response: { 200: ChangedSink },
    },
    handler: (request) => createRelayControl(db).disableSink({ ...request.params }),
  });
};
