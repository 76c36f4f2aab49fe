import { AckCommand, Command } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunCommandParams } from '../../http/schemas';

export const ackCommandRoute: Route = (app, { db }) => {
  const { ackCommand } = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/commands/:commandId/ack',
    config: { access: ['runner'] },
    schema: {
      operationId: 'ackCommand',
      summary: 'Say that a command has been taken up',
      tags: ['runner'],
      params: RunCommandParams,
      body: AckCommand,
      response: { 200: Command },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return ackCommand({ tenantId, ...request.params, ...request.body });
    },
  });
};
