import { RenewSubmissions, SubmissionVerdicts } from '@runplane/contracts';
import { renewSubmissions } from '@runplane/queue';
import type { Route } from '..';

export const renewSubmissionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/submissions/claims/renew',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'renewSubmissions',
      summary: 'Prolong claims of submissions, each by its epoch',
      description: 'A verdict for each: what is lost of one does not touch the others.',
      tags: ['submissions'],
      body: RenewSubmissions,
      response: { 200: SubmissionVerdicts },
    },
    handler: async (request) => ({ claims: await renewSubmissions(db, { tenantId: request.credential.tenantId, ...request.body }) }),
  });
};
