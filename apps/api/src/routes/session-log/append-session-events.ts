import { AppendedSessionEvents, AppendSessionEvents } from '@runplane/contracts';
import { appendSessionEvents } from '@runplane/sessions';
import type { Route } from '..';
import { requireScope } from '../../access/authenticate';
import { SessionParams } from '../../http/schemas';

/** Events by which a person's decision enters the log: whoever sends them must be allowed to decide, lease or not. */
const DECISIONS = new Set(['approval/resolved', 'user-input/resolved']);

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
      if (body.events.some(({ type }) => DECISIONS.has(type))) requireScope(credential, ['approvals:resolve']);
      const appended = await appendSessionEvents(db, { tenantId: credential.tenantId, ...params, ...body });
      return reply.code(appended.replayed || appended.events.length === 0 ? 200 : 201).send(appended);
    },
  });
};
