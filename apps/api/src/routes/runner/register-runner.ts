import { Forbidden, Runner } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { registerRunner } from '@runplane/runs';
import type { Route } from '..';
import { NewRunner } from '../../http/schemas';

export const registerRunnerRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runners',
    config: { access: ['runner'], runInBody: true },
    schema: {
      operationId: 'registerRunner',
      summary: 'Register a runner',
      tags: ['runner'],
      body: NewRunner,
      response: { 201: Runner },
    },
    handler: async (request, reply) => {
      const { tenantId, runId } = request.credential;
      const { runnerId, ...runner } = request.body;
      if (runId !== null && runner.runId !== runId) throw new Forbidden('This token is for another run.', { scope: 'runner' });
      return reply.code(201).send(await inTransaction(db, (tx) => registerRunner(tx, { tenantId, runnerId, runner })));
    },
  });
};
