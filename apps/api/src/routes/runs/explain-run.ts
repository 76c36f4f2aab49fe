import { RunExplanation } from '@runplane/contracts';
import { explainRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const explainRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/why',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'explainRun',
      summary: 'Say why a run is not moving, or that it is',
      description:
        'One sentence, its cause, when the service acts by itself, and the facts: state, holder, lease, dispatch, errors, deadlines.',
      tags: ['runs'],
      params: RunParams,
      response: { 200: RunExplanation },
    },
    handler: (request) => explainRun(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
