import { IdempotencyKeyRequired, QueueRetryReservation, ReserveQueueRetry } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { reserveQueueRetry } from '@runplane/queue';
import type { Route } from '..';
import { TaskParams, keyed } from '../../http/schemas';

export const reserveQueueRetryRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/retries',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'reserveQueueRetry',
      summary: 'Reserve the retry of a failed or blocked task',
      description:
        'Keeps other retries away for ten minutes and allots the ids of run and job: make the run under that id, then activate. Needs the header Idempotency-Key; repeat with the same key and reason.',
      tags: ['queue'],
      params: TaskParams,
      body: ReserveQueueRetry,
      ...keyed(QueueRetryReservation),
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const idempotencyKey = request.headers['idempotency-key'];
      if (idempotencyKey === undefined) throw new IdempotencyKeyRequired('A retry needs the header Idempotency-Key.');
      const reserved = await inTransaction(db, (tx) =>
        reserveQueueRetry(tx, { tenantId, ...request.params, ...request.body, idempotencyKey }),
      );
      return reply.code(reserved.created ? 201 : 200).send(reserved);
    },
  });
};
