import { AppendedEvents, AppendEvents } from '@runplane/contracts';
import { appendRunEvents } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const appendRunEventsRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/events',
    config: { access: ['runner'], measured: 'append' },
    schema: {
      operationId: 'appendRunEvents',
      summary: 'Append events to the log of a run',
      description: 'All or none, in the order given. With a producer sequence a repeated call gets the stored events.',
      tags: ['runner'],
      params: RunParams,
      body: AppendEvents,
      response: { 200: AppendedEvents, 201: AppendedEvents },
    },
    handler: async (request, reply) => {
      const appended = await appendRunEvents(db, { tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(appended.replayed ? 200 : 201).send(appended);
    },
  });
};
