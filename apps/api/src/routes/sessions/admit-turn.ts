import { AdmittedSteer, AdmittedTurn, AdmitTurn, IdempotencyKeyRequired, InterruptingTurn, QueuedTurn } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { admitTurn } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { keyed, SessionParams } from '../../http/schemas';

const Waiting = z.discriminatedUnion('disposition', [InterruptingTurn, QueuedTurn]);
const { headers, response } = keyed(z.discriminatedUnion('disposition', [AdmittedTurn, AdmittedSteer, QueuedTurn]));

export const admitTurnRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/turns',
    config: { access: ['sessions:write'] },
    schema: {
      operationId: 'admitTurn',
      summary: 'Start a turn in a session',
      description:
        'Makes a run and its first command, and asks for a runner, together or not at all. Needs the header Idempotency-Key; repeat with the same key. `busyPolicy` says what to do when the session has an open turn; with `interrupt` the answer is 202 until that turn has ended: repeat the call; with `enqueue` it is 202 with the place in the session’s queue, from which the turn starts by itself.',
      tags: ['sessions'],
      params: SessionParams,
      body: AdmitTurn,
      headers,
      response: { ...response, 202: Waiting },
    },
    handler: async (request, reply) => {
      const { tenantId, keyId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      if (idempotencyKey === undefined) throw new IdempotencyKeyRequired();
      const call = { tenantId, ...request.params, turn: request.body, idempotencyKey, requestedBy: keyId };
      const admission = await inTransaction(db, (tx) => admitTurn(tx, call));
      if (admission.disposition === 'interrupting') return reply.code(202).header('retry-after', 1).send(admission);
      if (admission.disposition === 'queued' && !admission.replayed) return reply.code(202).send(admission);
      return reply.code(admission.replayed ? 200 : 201).send(admission);
    },
  });
};
