import { InputRequest } from '@runplane/contracts';
import { waitForInput } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { InputRequestParams, wait } from '../../http/schemas';

export const getInputRequestRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/input-requests/:requestId',
    config: { access: ['sessions:read', 'approvals:resolve'], measured: 'waits' },
    schema: {
      operationId: 'getInputRequest',
      summary: 'Read a request for input, or wait for its answer',
      description: 'A wait that ends without one writes nothing and decides nothing.',
      tags: ['approvals'],
      params: InputRequestParams,
      querystring: z.strictObject({ wait }),
      response: { 200: InputRequest },
    },
    handler: (request, reply) => {
      const call = { tenantId: request.credential.tenantId, ...request.params, waitMs: request.query.wait * 1000 };
      return waiters.poll(reply, call.waitMs, (signal) => waitForInput(db, { ...call, signal }));
    },
  });
};
