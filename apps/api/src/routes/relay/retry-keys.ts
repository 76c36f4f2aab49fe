import { RetryKeys, RetriedKeys } from '@runplane/contracts';
import { createRelayControl } from '@runplane/outbox';
import type { Route } from '..';
import { SinkParams } from '../../http/schemas';

export const retryKeysRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/relay/sinks/:sink/retry',
    config: { access: ['operator'] },
    schema: {
      operationId: 'retryBlockedKeys',
      summary: 'Try a blocked key again at once, or all parked ones',
      description:
        'After what stood in the way is gone: a topic was made, a limit raised, a right given. While the answer has `more`, call again with its `before`.',
      tags: ['relay'],
      params: SinkParams,
      body: RetryKeys,
      response: { 200: RetriedKeys },
    },
    handler: (request) => createRelayControl(db).retryBlockedKeys({ ...request.params, ...request.body }),
  });
};
