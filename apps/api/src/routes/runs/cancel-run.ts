import { Cancel, CancelledRun } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { cancelRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const cancelRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/cancel',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'cancelRun',
      summary: 'Ask that a run stop',
      description:
        'A run that nobody has claimed ends at once; a claimed one is `cancelling` until its runner has stopped or `graceMs` is over. Repeat as you like.',
      tags: ['runs'],
      params: RunParams,
      body: Cancel,
      response: { 200: CancelledRun },
    },
    handler: (request) => {
      const { tenantId, keyId } = request.credential;
      return inTransaction(db, (tx) => cancelRun(tx, { tenantId, ...request.params, ...request.body, requestedBy: keyId }));
    },
  });
};
