import { DeletedSession, DeleteSession } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { deleteSession } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const deleteSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'DELETE',
    url: '/sessions/:sessionId',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'deleteSession',
      summary: 'Delete a session with its log and its runs',
      description:
        'At once every call about it is refused with 410; what was open in it is closed, and the feed tells `session/deleted`. Rows and texts are erased in the background, storage is left to the collector; then the id may be used again. 409 `session_in_use` while a turn or run of it is open, or a worker holds its lease.',
      tags: ['sessions'],
      params: SessionParams,
      querystring: z.strictObject(DeleteSession.shape),
      response: { 200: DeletedSession },
    },
    handler: (request) => {
      const { tenantId, keyId } = request.credential;
      return inTransaction(db, (tx) => deleteSession(tx, { tenantId, ...request.params, ...request.query, requestedBy: keyId }));
    },
  });
};
