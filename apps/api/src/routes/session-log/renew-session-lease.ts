import { RenewSessionLease, SessionLease } from '@runplane/contracts';
import { renewSessionLease } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const renewSessionLeaseRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/lease/renew',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'renewSessionLease',
      summary: 'Prolong a session lease',
      description: 'One that has ended is not revived: acquire it anew.',
      tags: ['session log'],
      params: SessionParams,
      body: RenewSessionLease,
      response: { 200: SessionLease },
    },
    handler: (request) => renewSessionLease(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
