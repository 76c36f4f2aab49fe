import { SubmissionList } from '@runplane/contracts';
import { listUnfinishedSubmissions } from '@runplane/sessions';
import type { Route } from '..';
import { CursorPageQuery, SessionParams } from '../../http/schemas';

export const listSessionSubmissionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/submissions',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionSubmissions',
      summary: 'List the unfinished submissions of a session, in the order in which they are worked on',
      tags: ['submissions'],
      params: SessionParams,
      querystring: CursorPageQuery,
      response: { 200: SubmissionList },
    },
    handler: (request) => listUnfinishedSubmissions(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
