import { Cancel, CancelledSession } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { cancelSession } from '@runplane/runs';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const cancelSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/cancel',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'cancelSession',
      summary: 'Ask that whatever runs in a session stop',
      description:
        'Cancels the run of the open turn, as `POST /v1/runs/:runId/cancel` does. Where nothing runs it changes nothing and answers `run: null`.',
      tags: ['sessions'],
      params: SessionParams,
      body: Cancel,
      response: { 200: CancelledSession },
    },
    handler: (request) => {
      const { tenantId, keyId } = request.credential;
      return inTransaction(db, (tx) => cancelSession(tx, { tenantId, ...request.params, ...request.body, requestedBy: keyId }));
    },
  });
};
