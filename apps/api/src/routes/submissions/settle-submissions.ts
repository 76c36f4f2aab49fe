import { SettleSubmissions, SubmissionVerdicts } from '@runplane/contracts';
import { settleSubmissions } from '@runplane/queue';
import type { Route } from '..';

export const settleSubmissionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/submissions/claims/settle',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'settleSubmissions',
      summary: 'End claims of submissions with their results, or give them back',
      description:
        'A verdict for each. `completed` and `failed` are told by an event of the session. `released` gives one back: told without an error the try does not count, told with one it comes again after a back-off, and the tenth try fails it.',
      tags: ['submissions'],
      body: SettleSubmissions,
      response: { 200: SubmissionVerdicts },
    },
    handler: async (request) => ({ claims: await settleSubmissions(db, { tenantId: request.credential.tenantId, ...request.body }) }),
  });
};
