import { RenewedSubmission, RenewSubmission } from '@runplane/contracts';
import { renewSubmission } from '@runplane/queue';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const renewSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/submissions/:operationId/renew',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'renewSubmission',
      summary: 'Prolong the claim of a submission, by its epoch',
      tags: ['submissions'],
      params: SubmissionParams,
      body: RenewSubmission,
      response: { 200: RenewedSubmission },
    },
    handler: (request) => renewSubmission(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
