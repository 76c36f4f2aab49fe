import { AppendedSessionEvents, AppendRunSessionEvents } from '@runplane/contracts';
import { createRuns } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const appendRunSessionEventsRoute: Route = (app, { db }) => {
  const runs = createRuns(db);
  app.route({
    method: 'POST',
    url: '/runs/:runId/session-events',
    config: { access: ['runner'], measured: 'append' },
    schema: {
      operationId: 'appendRunSessionEvents',
      summary: "Append to the session's log, as the runner of its open turn",
      description:
        'Under the claim of the run, without a session lease; run and turn are stamped on the events. With an append id a repeated call gets the first answer.',
      tags: ['runner'],
      params: RunParams,
      body: AppendRunSessionEvents,
      response: { 200: AppendedSessionEvents, 201: AppendedSessionEvents },
    },
    handler: async (request, reply) => {
      const appended = await runs.appendRunSessionEvents({ tenantId: request.credential.tenantId, ...request.params, ...request.body });
      return reply.code(appended.replayed || appended.events.length === 0 ? 200 : 201).send(appended);
    },
  });
};
