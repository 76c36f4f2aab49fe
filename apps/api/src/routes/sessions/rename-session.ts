import { ChangedSession, RenameSession } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { renameSession } from '@runplane/sessions';
import type { Route } from '..';
import { SessionParams } from '../../http/schemas';

export const renameSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/rename',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'renameSession',
      summary: 'Give a session another title',
      description: 'A session is called after `metadata.title` or its first turn until it is renamed; no turn overwrites a title.',
      tags: ['sessions'],
      params: SessionParams,
      body: RenameSession,
      response: { 200: ChangedSession },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return inTransaction(db, (tx) => renameSession(tx, { tenantId, ...request.params, ...request.body }));
    },
  });
};
