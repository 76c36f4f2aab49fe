import { Cancel, CancelledCommand } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { cancelCommand } from '@runplane/runs';
import type { Route } from '..';
import { CommandParams } from '../../http/schemas';

export const cancelCommandRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/commands/:commandId/cancel',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'cancelCommand',
      summary: 'Ask that a command stop; its run stays open',
      tags: ['commands'],
      params: CommandParams,
      body: Cancel,
      response: { 200: CancelledCommand },
    },
    handler: (request) => {
      const { tenantId, keyId } = request.credential;
      return inTransaction(db, (tx) => cancelCommand(tx, { tenantId, ...request.params, ...request.body, requestedBy: keyId }));
    },
  });
};
