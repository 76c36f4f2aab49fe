import { SubmissionCounts } from '@runplane/contracts';
import { countUnfinishedSubmissions } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const countSubmissionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/submission-counts',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'countSubmissions',
      summary: 'Count the unfinished submissions of a session',
      tags: ['submissions'],
      params: SessionParams,
      response: { 200: SubmissionCounts },
    },
    handler: (request) => countUnfinishedSubmissions(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
