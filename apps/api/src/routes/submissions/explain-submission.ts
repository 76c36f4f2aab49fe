import { SubmissionExplanation } from '@runplane/contracts';
import { explainSubmission } from '@runplane/queue';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const explainSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/submissions/:operationId/why',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'explainSubmission',
      summary: 'Say why a submission is where it is, and what moves it next',
      tags: ['submissions'],
      params: SubmissionParams,
      response: { 200: SubmissionExplanation },
    },
    handler: (request) => explainSubmission(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
