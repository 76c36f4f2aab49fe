import { SessionSnapshotAnswer } from '@runplane/contracts';
import { readSnapshot } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const getSessionSnapshotRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/snapshot',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getSessionSnapshot',
      summary: 'Read how a session stands by its log',
      description:
        "What a cold start looks at: active turn and step, the driver's state, what waits in the inbox, open approvals and requests for input. Null while the log is empty.",
      tags: ['session views'],
      params: SessionParams,
      response: { 200: SessionSnapshotAnswer },
    },
    handler: (request) => readSnapshot(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
