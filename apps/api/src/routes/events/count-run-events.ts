import { RunEventCount } from '@runplane/contracts';
import { countRunEvents } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { afterSeq, RunParams } from '../../http/schemas';

export const countRunEventsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/events/count',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'countRunEvents',
      summary: 'How many events a run has after a sequence',
      tags: ['events'],
      params: RunParams,
      querystring: z.strictObject({ after: afterSeq }),
      response: { 200: RunEventCount },
    },
    handler: (request) => countRunEvents(db, { tenantId: request.credential.tenantId, ...request.params, afterSeq: request.query.after }),
  });
};
