import { ClaimedRun, ClaimRun } from '@runplane/contracts';
import { claimRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const claimRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/claim',
    config: { access: ['runner'] },
    schema: {
      operationId: 'claimRun',
      summary: 'Take a run over, under a lease',
      description:
        'The answer has the epoch that every further call names, and the open commands. Repeated by the holder it gives the same epoch.',
      tags: ['runner'],
      params: RunParams,
      body: ClaimRun,
      response: { 200: ClaimedRun },
    },
    handler: (request) => claimRun(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body }),
  });
};
