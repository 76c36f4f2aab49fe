import { RequeuedSubmission } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { requeueSubmission } from '@runplane/queue';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const requeueSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/submissions/:operationId/requeue',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'requeueSubmission',
      summary: 'Give a failed submission another try',
      description:
        'It waits behind everything that its session has, with as many tries as a new one. One that waits already stays where it is; one that is completed is 409.',
      tags: ['submissions'],
      params: SubmissionParams,
      response: { 200: RequeuedSubmission },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return inTransaction(db, (tx) => requeueSubmission(tx, { tenantId, ...request.params }));
    },
  });
};
