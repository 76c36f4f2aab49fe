import { Command } from '@runplane/contracts';
import { getCommand } from '@runplane/runs';
import type { Route } from '..';
import { CommandParams } from '../../http/schemas';

export const getCommandRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/commands/:commandId',
    config: { access: ['runs:read'] },
    schema: { operationId: 'getCommand', summary: 'Read a command', tags: ['commands'], params: CommandParams, response: { 200: Command } },
    handler: (request) => getCommand(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
