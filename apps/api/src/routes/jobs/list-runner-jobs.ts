import { identifier, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, RunnerJobList } from '@runplane/contracts';
import { listRunnerJobs } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, RunParams } from '../../http/schemas';

const Query = z.strictObject({
  commandId: identifier.optional(),
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listRunnerJobsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/jobs',
    config: { access: ['runs:read', 'runner'], runTokens: false },
    schema: {
      operationId: 'listRunnerJobs',
      summary: 'List the jobs of a run, oldest first',
      tags: ['jobs'],
      params: RunParams,
      querystring: Query,
      response: { 200: RunnerJobList },
    },
    handler: (request) => listRunnerJobs(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
