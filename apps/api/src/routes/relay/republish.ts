import { Republish, Republishing } from '@runplane/contracts';
import { createRelayControl } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const republishRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/relay/sinks/:sink/republish',
    config: { access: ['operator'] },
    schema: {
      operationId: 'republish',
      summary: 'Send a range of the feed to a sink once more',
      description: 'In order per key, beside what is new. What the sink has not got yet comes by itself.',
      tags: ['relay'],
      params: SinkParams,
      body: Republish,
      response: { 200: Republishing },
    },
    handler: (request) => createRelayControl(db).republish({ ...request.params, ...request.body }),
  });
};
