import { AcceptSubmission, IdempotencyKeyRequired, SubmissionReceipt } from '@runplane/contracts';
import { acceptSubmission } from '@runplane/sessions';
import type { Route } from '..';
import { IdempotencyHeaders, SessionParams } from '../../http/schemas';

export const acceptSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/submissions',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'acceptSubmission',
      summary: 'Put something before a session, to be worked on in order',
      description:
        'The header Idempotency-Key is the operation id, unique in the session: the same one with the same content gets the same receipt, as `duplicate`. The answer says that it is durably accepted, not that it was begun. 429 where the session has as many unfinished ones as it may.',
      tags: ['submissions'],
      params: SessionParams,
      headers: IdempotencyHeaders,
      body: AcceptSubmission,
      response: { 200: SubmissionReceipt, 202: SubmissionReceipt },
    },
    handler: async (request, reply) => {
      const operationId = request.headers['idempotency-key'];
      if (operationId === undefined) throw new IdempotencyKeyRequired('A submission needs an operation id: the header Idempotency-Key.');
      const { tenantId } = request.credential;
      const receipt = await acceptSubmission(db, { tenantId, ...request.params, operationId, submission: request.body });
      return reply.code(receipt.status === 'accepted' ? 202 : 200).send(receipt);
    },
  });
};
