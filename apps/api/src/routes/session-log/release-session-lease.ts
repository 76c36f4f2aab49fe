import { ReleasedSessionLease, ReleaseSessionLease } from '@runplane/contracts';
import { releaseSessionLease } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const releaseSessionLeaseRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/lease/release',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'releaseSessionLease',
      summary: 'Give a session lease back',
      description: 'Nothing happens where it is over.',
      tags: ['session log'],
      params: SessionParams,
      body: ReleaseSessionLease,
      response: { 200: ReleasedSessionLease },
    },
    handler: (request) => releaseSessionLease(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
