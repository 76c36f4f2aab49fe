import { ListRuns, RUN_LIST_ROWS_DEFAULT, RUN_LIST_ROWS_MAX, RUN_STATES, RunList } from '@runplane/contracts';
import { listRuns } from '@runplane/runs';
import type { Route } from '..';
import { queryBool, queryInt, queryList } from '../../http/schemas';

const Query = ListRuns.omit({ statuses: true }).extend({
  status: queryList(RUN_STATES).optional().meta({ description: 'One or several, with commas' }),
  limit: queryInt(1, RUN_LIST_ROWS_MAX).default(RUN_LIST_ROWS_DEFAULT),
  total: queryBool.meta({ description: 'Tell how many runs the filter finds, counted up to 10,000' }),
});

export const listRunsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'listRuns',
      summary: 'List runs, the latest change first',
      description:
        'Follow `cursor` until it is null: a page looks at 10,000 runs at most and may be short, even empty, before the end. A run that changes meanwhile may be missing from later pages.',
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
