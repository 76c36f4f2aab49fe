import { SkipEvent, SkippedEvent } from '@runplane/contracts';
import { createRelayControl } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const skipEventRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/relay/sinks/:sink/skip',
    config: { access: ['operator'] },
    schema: {
      operationId: 'skipBlockedEvent',
      summary: 'Give up the event at which a key is blocked',
      description:
        'It will not be sent to this sink; what waits behind it is tried at once. The call names the event, so that one that comes too late skips nothing.',
      tags: ['relay'],
      params: SinkParams,
      body: SkipEvent,
      response: { 200: SkippedEvent },
    },
    handler: (request) => createRelayControl(db).skipBlockedEvent({ ...request.params, ...request.body }),
  });
};
