import { EnableSink, ChangedSink } from '@runplane/contracts';
import { createRelayControl } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const enableSinkRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/relay/sinks/:sink/enable',
    config: { access: ['operator'] },
    schema: {
      operationId: 'enableSink',
      summary: 'Let relays serve a sink again',
      description:
        'Where it was, or from `start`: then what it held is forgotten first, so much a call. While the answer has `more`, call again.',
      tags: ['relay'],
      params: SinkParams,
      body: EnableSink,
      response: { 200: ChangedSink },
    },
    handler: (request) => createRelayControl(db).enableSink({ ...request.params, ...request.body }),
  });
};
