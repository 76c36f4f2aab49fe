import { RevokedSessionLease } from '@runplane/contracts';
import { revokeSessionLease } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const revokeSessionLeaseRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/lease/revoke',
    config: { access: ['admin'] },
    schema: {
      operationId: 'revokeSessionLease',
      summary: 'Take a session lease away from its holder',
      description: 'For operators: whoever holds it is refused from its next append on.',
      tags: ['session log'],
      params: SessionParams,
      response: { 200: RevokedSessionLease },
    },
    handler: (request) => revokeSessionLease(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
