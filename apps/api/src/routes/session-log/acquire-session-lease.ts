import { AcquireSessionLease, SessionLease } from '@runplane/contracts';
import { acquireSessionLease } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const acquireSessionLeaseRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/lease',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'acquireSessionLease',
      summary: "Acquire the right to append to a session's log",
      description: 'The holder gets its own lease prolonged; while another holds it the answer is 409 with the time that is left.',
      tags: ['session log'],
      params: SessionParams,
      body: AcquireSessionLease,
      response: { 200: SessionLease },
    },
    handler: (request) => acquireSessionLease(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
