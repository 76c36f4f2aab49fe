import { AdmittedTurn, AdmitTurn, IdempotencyKeyRequired } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { admitTurn } from '@runplane/runs';
import type { Route } from '..';
import { IdempotencyHeaders, SessionParams } from '../../http/schemas';

export const admitTurnRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/turns',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'admitTurn',
      summary: 'Start a turn in a session',
      description:
        'Makes a run and its first command, and asks for a runner, together or not at all. Needs the header Idempotency-Key; repeat with the same key.',
      tags: ['sessions'],
      params: SessionParams,
      headers: IdempotencyHeaders,
      body: AdmitTurn,
      response: { 200: AdmittedTurn, 201: AdmittedTurn },
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      if (idempotencyKey === undefined) throw new IdempotencyKeyRequired();
      const turn = await inTransaction(db, (tx) => admitTurn(tx, { tenantId, ...request.params, turn: request.body, idempotencyKey }));
      return reply.code(turn.replayed ? 200 : 201).send(turn);
    },
  });
};
