import { CommandList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { listCommands } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { afterSeq, queryInt, RunParams } from '../../http/schemas';

export const listCommandsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/commands',
    config: { access: ['runs:read', 'runner'] },
    schema: {
      operationId: 'listCommands',
      summary: 'List the commands of a run, in their order',
      tags: ['commands'],
      params: RunParams,
      querystring: z.strictObject({ after: afterSeq, limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) }),
      response: { 200: CommandList },
    },
    handler: (request) => {
      const { after, limit } = request.query;
      return listCommands(db, { tenantId: request.credential.tenantId, ...request.params, afterSeq: after, limit });
    },
  });
};
