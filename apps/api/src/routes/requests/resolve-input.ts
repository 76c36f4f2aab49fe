import { ResolvedInput, ResolveInput } from '@runplane/contracts';
import { createSessions } from '@runplane/sessions';
import type { Route } from '..';
import { deciding, InputRequestParams } from '../../http/schemas';

export const resolveInputRoute: Route = (app, { db }) => {
  const sessions = createSessions(db);
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/input-requests/:requestId/resolve',
    config: { access: ['approvals:resolve'] },
    schema: {
      operationId: 'resolveInput',
      summary: 'Answer a request for input, or decline',
      description:
        'The answer has to fit the schema of the request (400 `invalid_input_value`). Answered once: whoever comes second gets 409 `input_request_not_pending` with the state.',
      tags: ['approvals'],
      params: InputRequestParams,
      body: ResolveInput,
      response: { 200: ResolvedInput },
    },
    handler: (request) =>
      sessions.resolveInput({ tenantId: request.credential.tenantId, ...request.params, ...deciding(request.body, request.credential) }),
  });
};
