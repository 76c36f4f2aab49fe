import { identifier, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, RunnerList } from '@runplane/contracts';
import { listRunners } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt } from '../../http/schemas';

const Query = z.strictObject({
  runId: identifier.optional(),
  backendProfile: identifier.optional(),
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listRunnersRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runners',
    config: { access: ['runs:read', 'runner'] },
    schema: {
      operationId: 'listRunners',
      summary: 'List registered runners, by id',
      tags: ['runner'],
      querystring: Query,
      response: { 200: RunnerList },
    },
    handler: (request) => listRunners(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
