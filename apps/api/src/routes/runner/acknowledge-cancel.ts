import { AcknowledgeCancel, CancelProgress } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const acknowledgeCancelRoute: Route = (app, { db }) => {
  const { acknowledgeCancel } = createRuns(db);
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
      return acknowledgeCancel({ tenantId, ...request.params, ...request.body });
    },
  });
};
