import { ExpiredStorageList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { listGcExpiredSessions } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt } from '../../http/schemas';

const Query = z.strictObject({
  cursor: z.string().optional().meta({ description: 'Of the page before' }),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listExpiredStorageRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/expired-storage',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listExpiredStorage',
      summary: 'List sessions whose storage has expired, the longest expired first',
      tags: ['sessions'],
      querystring: Query,
      response: { 200: ExpiredStorageList },
    },
    handler: (request) => listGcExpiredSessions(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
