import { FinishRun, Run } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const finishRunRoute: Route = (app, { db }) => {
  const { finishRun } = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/finish',
    config: { access: ['runner'] },
    schema: {
      operationId: 'finishRun',
      summary: 'Report how a run ended, and close it',
      description: 'Repeated with the same outcome it answers the same; another outcome gets 409 run_closed.',
      tags: ['runner'],
      params: RunParams,
      body: FinishRun,
      response: { 200: Run },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return finishRun({ tenantId, ...request.params, ...request.body });
    },
  });
};
