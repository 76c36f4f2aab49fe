import { RunResult } from '@runplane/contracts';
import { waitForRunResult } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { RunParams, wait } from '../../http/schemas';

export const getRunResultRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/result',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'getRunResult',
      summary: 'Read what became of a run: outcome, last assistant message, usage, failure',
      description: 'With `wait` the answer comes when the run has ended, or when the time is over; `finished` tells which.',
      tags: ['runs'],
      params: RunParams,
      querystring: z.strictObject({ wait }),
      response: { 200: RunResult },
    },
    handler: (request, reply) => {
      const run = { tenantId: request.credential.tenantId, ...request.params };
      const waitMs = request.query.wait * 1000;
      return waiters.poll(reply, waitMs, (signal) => waitForRunResult(db, { ...run, waitMs, signal }));
    },
  });
};
