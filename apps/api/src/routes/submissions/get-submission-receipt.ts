import { SubmissionReceipt } from '@runplane/contracts';
import { getSubmissionReceipt } from '@runplane/sessions';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const getSubmissionReceiptRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/submissions/:operationId/receipt',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSubmissionReceipt',
      summary: 'Read the receipt of an operation once more',
      tags: ['submissions'],
      params: SubmissionParams,
      response: { 200: SubmissionReceipt },
    },
    handler: (request) => getSubmissionReceipt(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
