import { CreatedQueueTask, CreateQueueTask } from '@runplane/contracts';
import { createQueueTask } from '@runplane/queue';
import type { Route } from '..';
import { keyed } from '../../http/schemas';

export const createQueueTaskRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'createQueueTask',
      summary: 'Put a task into a queue',
      description: 'With the header Idempotency-Key a repeat returns the task of the first call: the key belongs to tenant and project.',
      tags: ['queue'],
      body: CreateQueueTask,
      ...keyed(CreatedQueueTask),
    },
    handler: async (request, reply) => {
      const { tenantId } = request.credential;
      const created = await createQueueTask(db, { tenantId, task: request.body, idempotencyKey: request.headers['idempotency-key'] });
      return reply.code(created.replayed ? 200 : 201).send(created);
    },
  });
};
