import { InputRequestList } from '@runplane/contracts';
import { listPendingInputs } from '@runplane/sessions';
import type { Route } from '..';
import { PendingQuery } from '../../http/schemas';

export const listPendingInputsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/input-requests',
    config: { access: ['sessions:read', 'approvals:resolve'] },
    schema: {
      operationId: 'listPendingInputs',
      summary: 'List requests for input that wait for an answer, the oldest first',
      description: 'Of one session, or of all. Those whose time is over are left out. Follow `cursor` until it is null.',
      tags: ['approvals'],
      querystring: PendingQuery,
      response: { 200: InputRequestList },
    },
    handler: (request) => listPendingInputs(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
