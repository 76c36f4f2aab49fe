import { AdmitSteer, AdmittedSteer, IdempotencyKeyRequired } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { admitSteer } from '@runplane/runs';
import type { Route } from '..';
import { keyed, SessionParams } from '../../http/schemas';

export const admitSteerRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/steers',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'admitSteer',
      summary: 'Steer the open turn of a session',
      description:
        'Gives the turn that is under way words on its way; 409 `no_receivable_turn` when none can take them. Needs the header Idempotency-Key; repeat with the same key.',
      tags: ['sessions'],
      params: SessionParams,
      body: AdmitSteer,
      ...keyed(AdmittedSteer),
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      if (idempotencyKey === undefined) throw new IdempotencyKeyRequired();
      const steer = await inTransaction(db, (tx) => admitSteer(tx, { tenantId, ...request.params, steer: request.body, idempotencyKey }));
      return reply.code(steer.replayed ? 200 : 201).send(steer);
    },
  });
};
