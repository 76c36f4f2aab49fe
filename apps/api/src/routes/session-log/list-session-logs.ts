import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, SessionLogList } from '@runplane/contracts';
import { listSessionLogs } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt } from '../../http/schemas';

const Query = z.strictObject({ cursor: z.string().optional(), limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listSessionLogsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/session-logs',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionLogs',
      summary: 'List the headers of all sessions, the newest first',
      tags: ['session log'],
      querystring: Query,
      response: { 200: SessionLogList },
    },
    handler: (request) => listSessionLogs(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
