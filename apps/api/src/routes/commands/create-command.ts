import { CreateCommand, CreatedCommand } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { createCommand } from '@runplane/runs';
import type { Route } from '..';
import { keyed, RunParams } from '../../http/schemas';

export const createCommandRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/commands',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'createCommand',
      summary: 'Add a command to a run',
      description:
        'A turn needs the header Idempotency-Key. The same key and content get the same command, other content 409 idempotency_conflict.',
      tags: ['commands'],
      params: RunParams,
      body: CreateCommand,
      ...keyed(CreatedCommand),
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      const created = await inTransaction(db, (tx) =>
        createCommand(tx, { tenantId, ...request.params, command: request.body, idempotencyKey }),
      );
      return reply.code(created.replayed ? 200 : 201).send(created);
    },
  });
};
