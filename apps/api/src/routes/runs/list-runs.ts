import { identifier, RUN_LIST_ROWS_DEFAULT, RUN_LIST_ROWS_MAX, RUN_STATES, RunList } from '@runplane/contracts';
import { listRuns } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, queryList } from '../../http/schemas';

const Query = z.strictObject({
  status: queryList(RUN_STATES).optional().meta({ description: 'One or several, with commas' }),
  projectId: identifier.optional(),
  sessionId: identifier.optional(),
  backendProfile: identifier.optional(),
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit: queryInt(1, RUN_LIST_ROWS_MAX).default(RUN_LIST_ROWS_DEFAULT),
});

export const listRunsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'listRuns',
      summary: 'List runs, the latest change first',
      tags: ['runs'],
      querystring: Query,
      response: { 200: RunList },
    },
    handler: (request) => {
      const { status: statuses, ...filter } = request.query;
      return listRuns(db, { tenantId: request.credential.tenantId, statuses, ...filter });
    },
  });
};
