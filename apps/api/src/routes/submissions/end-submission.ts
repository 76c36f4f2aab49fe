import { EndedSubmission, EndSubmission } from '@runplane/contracts';
import { endSubmission } from '@runplane/sessions';
import type { Route } from '..';
import { SubmissionParams } from '../../http/schemas';

export const endSubmissionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/submissions/:operationId/end',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'endSubmission',
      summary: 'Say how a submission has ended',
      description:
        'With the epoch of the claim under which it was worked on, which must be in force; without one it is ended by hand, and a claim of it is over. The next unfinished one of the session becomes its oldest. Repeat as you like: the same end changes nothing, another one is 409.',
      tags: ['submissions'],
      params: SubmissionParams,
      body: EndSubmission,
      response: { 200: EndedSubmission },
    },
    handler: (request) => endSubmission(db, { tenantId: request.credential.tenantId, ...request.params, end: request.body }),
  });
};
