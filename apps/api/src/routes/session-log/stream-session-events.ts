import { InvalidCursor } from '@runplane/contracts';
import { getSessionLog } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { followSession } from '../../http/follow-session';
import { afterSequence, LastEventIdHeaders, SessionParams } from '../../http/schemas';
import { parseFrameId } from '../../http/sse';

export const streamSessionEventsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/events/stream',
    config: { access: ['sessions:read'], measured: 'waits' },
    schema: {
      operationId: 'streamSessionEvents',
      summary: "Follow a session's log as server-sent events",
      description: 'Starts after `Last-Event-ID`, else after `after`, else with the first event. A log has no end.',
      tags: ['session log'],
      produces: ['text/event-stream'],
      params: SessionParams,
      headers: LastEventIdHeaders,
      querystring: z.strictObject({ after: afterSequence }),
    },
    handler: async (request, reply) => {
      const session = { tenantId: request.credential.tenantId, ...request.params };
      const after = startOf(session.sessionId, request.headers['last-event-id'], request.query.after ?? -1);
      const { lastSequence } = await getSessionLog(db, session); // before the stream begins, while a refusal can still be an answer
      if (after > lastSequence) throw refused(`the log ends with ${lastSequence}, and has none after which to start at ${after}`);
      await followSession(reply, { db, waiters, ...session, after });
    },
  });
};

/** An empty header counts as none; browsers never send one. */
function startOf(sessionId: string, lastEventId: string | undefined, after: number): number {
  if (lastEventId === undefined || lastEventId === '') return after;
  const sequence = parseFrameId(lastEventId, sessionId);
  if (sequence === undefined) throw refused('Last-Event-ID is no id of an event of this session');
  return sequence;
}

function refused(reason: string): InvalidCursor {
  return new InvalidCursor(`${reason}: start with an id that the stream has sent, or without one.`, { reason });
}
