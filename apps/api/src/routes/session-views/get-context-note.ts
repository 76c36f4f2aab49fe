import { ContextNote, NotePath } from '@runplane/contracts';
import { getContextNote } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

const Query = z.strictObject({ path: NotePath });

export const getContextNoteRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/context-note',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'getContextNote',
      summary: 'Read one note of a session',
      description: '`path` names it; a note may have the empty path.',
      tags: ['session views'],
      params: SessionParams,
      querystring: Query,
      response: { 200: ContextNote },
    },
    handler: (request) => getContextNote(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
