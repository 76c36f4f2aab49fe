import { ContextMatchList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, SearchContextHistory } from '@runplane/contracts';
import { searchContextHistory } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = SearchContextHistory.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const searchContextHistoryRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/context-search',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'searchContextHistory',
      summary: 'Search what was said in a session, newest first',
      description:
        'Follow `cursor` until it is null: a call looks at 10,000 items and 16 MiB of text at most, and may find nothing there. Of a longer item `words` looks at the first 131,072 characters.',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ContextMatchList },
    },
    handler: (request) => searchContextHistory(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
