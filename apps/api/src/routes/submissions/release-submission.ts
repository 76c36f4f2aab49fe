import { ReleaseSubmission, Submission } from '@runplane/contracts';
import { releaseSubmission } from '@runplane/queue';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const releaseSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/submissions/:operationId/release',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'releaseSubmission',
      summary: 'Give a claimed submission back, to be claimed again',
      description:
        'Told without an error the try does not count: it was not begun. Told with one it comes again after a back-off, and the tenth try fails it. Repeat as you like.',
      tags: ['submissions'],
      params: SubmissionParams,
      body: ReleaseSubmission,
      response: { 200: Submission },
    },
    handler: (request) => releaseSubmission(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
