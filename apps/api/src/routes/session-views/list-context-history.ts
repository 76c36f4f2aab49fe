import { ContextItemList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListContextHistory } from '@runplane/contracts';
import { listContextHistory } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = ListContextHistory.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listContextHistoryRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/context-history',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listContextHistory',
      summary: 'Read what was said in a window, oldest first',
      description: 'Follow `cursor` until it is null: a page of long items is short, and with `role` one may be empty.',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ContextItemList },
    },
    handler: (request) => listContextHistory(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
