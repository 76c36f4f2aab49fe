import { CreatedRun, CreateRun } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { createRun } from '@runplane/runs';
import type { Route } from '..';

export const createRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'createRun',
      summary: 'Create a run',
      description: 'A new run with each call. Where a call may be repeated, reserve an id and use PUT /v1/runs/{runId}.',
      tags: ['runs'],
      body: CreateRun,
      response: { 201: CreatedRun },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const created = await inTransaction(db, (tx) => createRun(tx, { tenantId, run: request.body }));
      return reply.code(201).send(created);
    },
  });
};
