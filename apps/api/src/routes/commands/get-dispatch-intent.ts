import { DispatchIntent, IntentNotFound } from '@runplane/contracts';
import { getDispatchIntent } from '@runplane/runs';
import type { Route } from '..';
import { CommandParams } from '../../http/schemas';

export const getDispatchIntentRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/commands/:commandId/intent',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'getDispatchIntent',
      summary: 'Read how the launch of a runner for a command goes',
      tags: ['commands'],
      params: CommandParams,
      response: { 200: DispatchIntent },
    },
    handler: async (request) => {
      const { commandId } = request.params;
      const intent = await getDispatchIntent(db, { tenantId: request.credential.tenantId, commandId });
      if (intent === null) throw new IntentNotFound(`Command ${commandId} asked for no runner.`, { commandId });
      return intent;
    },
  });
};
