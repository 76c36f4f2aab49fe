import { AcknowledgeCancel } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { acknowledgeCancel } from '@runplane/runs';
import type { Route } from '..';
import { CancelProgress, RunParams } from '../../http/schemas';

export const acknowledgeCancelRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/cancel-acknowledgements',
    config: { access: ['runner'] },
    schema: {
      operationId: 'acknowledgeCancel',
      summary: 'Say how far the runner has come with a cancel',
      tags: ['runner'],
      params: RunParams,
      body: AcknowledgeCancel,
      response: { 200: CancelProgress },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return inTransaction(db, (tx) => acknowledgeCancel(tx, { tenantId, ...request.params, ...request.body }));
    },
  });
};
