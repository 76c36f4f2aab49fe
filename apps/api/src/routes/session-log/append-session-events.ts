import { AppendedSessionEvents, AppendSessionEvents } from '@runplane/contracts';
import { appendSessionEvents } from '@runplane/sessions';
import type { Route } from '..';
import { requireDecider } from '../../access/require-decider';
import { SessionParams } from '../../http/schemas';

export const appendSessionEventsRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/events',
    config: { access: ['sessions:write'], measured: 'append' },
    schema: {
      operationId: 'appendSessionEvents',
      summary: "Append events to a session's log",
      description:
        'All or none, in the order given. With the epoch of the session lease any type; without it those that must arrive while somebody holds it (docs/sessions.md). With an append id a repeated call gets the first answer. Resolutions of approvals and input requests need the scope approvals:resolve as well.',
      tags: ['session log'],
      params: SessionParams,
      body: AppendSessionEvents,
      response: { 200: AppendedSessionEvents, 201: AppendedSessionEvents },
    },
    handler: async (request, reply) => {
      const { body, credential, params } = request;
      for (const { type } of body.events) requireDecider(credential, type);
      const appended = await appendSessionEvents(db, { tenantId: credential.tenantId, ...params, ...body });
      return reply.code(appended.replayed || appended.events.length === 0 ? 200 : 201).send(appended);
    },
  });
};
