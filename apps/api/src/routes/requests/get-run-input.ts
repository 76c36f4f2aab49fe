import { InputRequest } from '@runplane/contracts';
import { waitForRunInput } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { RunInputParams, wait } from '../../http/schemas';

export const getRunInputRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/input-requests/:requestId',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'getRunInput',
      summary: 'Read a request for input that a run has made, or wait for its answer',
      description: 'A wait that ends without one writes nothing and decides nothing.',
      tags: ['approvals'],
      params: RunInputParams,
      querystring: z.strictObject({ wait }),
      response: { 200: InputRequest },
    },
    handler: (request, reply) => {
      const call = { tenantId: request.credential.tenantId, ...request.params, waitMs: request.query.wait * 1000 };
      return waiters.poll(reply, call.waitMs, (signal) => waitForRunInput(db, { ...call, signal }));
    },
  });
};
