import { RefreshSessionStorage, Session } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { refreshSessionStorage } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const refreshSessionStorageRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/sessions/:sessionId/storage',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'refreshSessionStorage',
      summary: 'Say what storage a session has',
      description: 'Everything about it is replaced. 409 storage_evicting while storage of this name is being deleted.',
      tags: ['sessions'],
      params: SessionParams,
      body: RefreshSessionStorage,
      response: { 200: Session },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return inTransaction(db, (tx) => refreshSessionStorage(tx, { tenantId, ...request.params, storage: request.body }));
    },
  });
};
