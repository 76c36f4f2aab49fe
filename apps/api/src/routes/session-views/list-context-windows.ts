import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListPage, SessionContextWindowList } from '@runplane/contracts';
import { listContextWindows } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = ListPage.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listContextWindowsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/context-windows',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listContextWindows',
      summary: 'List the context windows of a session, the current one first',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: SessionContextWindowList },
    },
    handler: (request) => listContextWindows(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
