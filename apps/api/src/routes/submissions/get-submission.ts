import { Submission } from '@runplane/contracts';
import { getSubmission } from '@runplane/sessions';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const getSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/submissions/:operationId',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSubmission',
      summary: 'Read a submission: its state, who works on it, how often it was tried, its last error',
      tags: ['submissions'],
      params: SubmissionParams,
      response: { 200: Submission },
    },
    handler: (request) => getSubmission(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
