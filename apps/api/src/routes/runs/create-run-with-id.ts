import { CreatedRun, CreateRun } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { createRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const createRunWithIdRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/runs/:runId',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'createRunWithId',
      summary: 'Create a run under an id of your own',
      description: 'Repeat as you like: the same content gets the same run in its present state, other content 409 idempotency_conflict.',
      tags: ['runs'],
      params: RunParams,
      body: CreateRun,
      response: { 200: CreatedRun, 201: CreatedRun },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const created = await inTransaction(db, (tx) => createRun(tx, { tenantId, run: request.body, ...request.params }));
      return reply.code(created.replayed ? 200 : 201).send(created);
    },
  });
};
