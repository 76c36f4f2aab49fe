import { SubmissionList } from '@runplane/contracts';
import { listUnfinishedSubmissions } from '@runplane/sessions';
import type { Route } from '..';
import { CursorPageQuery } from '../../http/schemas';

export const listSubmissionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/submissions',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSubmissions',
      summary: 'List the unfinished submissions of all sessions, the longest accepted first',
      tags: ['submissions'],
      querystring: CursorPageQuery,
      response: { 200: SubmissionList },
    },
    handler: (request) => listUnfinishedSubmissions(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
