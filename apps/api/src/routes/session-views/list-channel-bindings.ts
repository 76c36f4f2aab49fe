import { ChannelBindingList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListPage } from '@runplane/contracts';
import { listChannelBindings } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = ListPage.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listChannelBindingsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/channel-bindings',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listChannelBindings',
      summary: 'List the addresses that are bound to a session',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ChannelBindingList },
    },
    handler: (request) => listChannelBindings(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
