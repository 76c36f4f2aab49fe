import { ContextNoteList, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListPage } from '@runplane/contracts';
import { listContextNotes } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt, SessionParams } from '../../http/schemas';

const Query = ListPage.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listContextNotesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/context-notes',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listContextNotes',
      summary: 'List the notes of a session',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ContextNoteList },
    },
    handler: (request) => listContextNotes(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
