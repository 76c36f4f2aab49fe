import { CommandList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { waitForCommands } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { afterSeq, queryInt, RunParams, wait } from '../../http/schemas';

export const listCommandsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/commands',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'listCommands',
      summary: 'List the commands of a run, in their order, or wait for the next one',
      description: 'A wait ends early, perhaps without a command, when the run takes no more of them.',
      tags: ['commands'],
      params: RunParams,
      querystring: z.strictObject({ after: afterSeq, limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT), wait }),
      response: { 200: CommandList },
    },
    handler: (request, reply) => {
      const { after, limit, wait: seconds } = request.query;
      const page = { tenantId: request.credential.tenantId, ...request.params, afterSeq: after, limit, waitMs: seconds * 1000 };
      return waiters.poll(reply, page.waitMs, (signal) => waitForCommands(db, { ...page, signal }));
    },
  });
};
