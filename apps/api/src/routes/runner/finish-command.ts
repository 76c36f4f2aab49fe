import { Command, FinishCommand } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunCommandParams } from '../../http/schemas';

export const finishCommandRoute: Route = (app, { db }) => {
  const { finishCommand } = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/commands/:commandId/finish',
    config: { access: ['runner'] },
    schema: {
      operationId: 'finishCommand',
      summary: 'Report how a command ended; the run stays open',
      tags: ['runner'],
      params: RunCommandParams,
      body: FinishCommand,
      response: { 200: Command },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return finishCommand({ tenantId, ...request.params, ...request.body });
    },
  });
};
