import { ChangedSession, MarkStorageEvicted } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { markSessionStorageEvicted } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const markStorageEvictedRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/storage/evicted',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'markSessionStorageEvicted',
      summary: 'Report that the storage of a session is gone',
      description: 'Names what was deleted and its version; 409 storage_changed where something else is attached by now.',
      tags: ['sessions'],
      params: SessionParams,
      body: MarkStorageEvicted,
      response: { 200: ChangedSession },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return inTransaction(db, (tx) => markSessionStorageEvicted(tx, { tenantId, ...request.params, ...request.body }));
    },
  });
};
