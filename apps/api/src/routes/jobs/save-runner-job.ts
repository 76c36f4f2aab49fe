import { SavedRunnerJob, SaveRunnerJob } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { saveRunnerJob } from '@runplane/runs';
import type { Route } from '..';
import { keyed, RunParams } from '../../http/schemas';

export const saveRunnerJobRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/jobs',
    config: { access: ['runner'], runTokens: false },
    schema: {
      operationId: 'saveRunnerJob',
      summary: 'Record a launched job',
      description: 'For dispatchers elsewhere; the run may have ended. A repeat, by key or planned id, gets the record of the first call.',
      tags: ['jobs'],
      params: RunParams,
      body: SaveRunnerJob,
      ...keyed(SavedRunnerJob),
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      const saved = await inTransaction(db, (tx) => saveRunnerJob(tx, { tenantId, ...request.params, job: request.body, idempotencyKey }));
      return reply.code(saved.replayed ? 200 : 201).send(saved);
    },
  });
};
