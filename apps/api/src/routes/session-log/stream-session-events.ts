import { InvalidCursor } from '@runplane/contracts';
import { assertSameLife, getSessionLog } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { followSession } from '../../http/follow-session';
import { afterSequence, incarnation, LastEventIdHeaders, SessionParams } from '../../http/schemas';
import { parseSessionFrameId } from '../../http/sse';

export const streamSessionEventsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/events/stream',
    config: { access: ['sessions:read'], measured: 'waits' },
    schema: {
      operationId: 'streamSessionEvents',
      summary: "Follow a session's log as server-sent events",
      description:
        'Starts after `Last-Event-ID`, else after `after`, else with the first event. A log has no end. A place in an earlier life of the id is 410 `other_incarnation`.',
      tags: ['session log'],
      produces: ['text/event-stream'],
      params: SessionParams,
      headers: LastEventIdHeaders,
      querystring: z.strictObject({ after: afterSequence, incarnation }),
    },
    handler: async (request, reply) => {
      const session = { tenantId: request.credential.tenantId, ...request.params };
      const place = startOf(session.sessionId, request.headers['last-event-id'], request.query);
      const { lastSequence, incarnation } = await getSessionLog(db, session); // before the stream begins, while a refusal can still be an answer
      assertSameLife({ ...session, ...place }, incarnation);
      const { after } = place;
      if (after > lastSequence) throw refused(`the log ends with ${lastSequence}, and has none after which to start at ${after}`);
      await followSession(reply, { db, waiters, ...session, incarnation, after });
    },
  });
};

/** An empty header counts as none; browsers never send one. */
function startOf(
  sessionId: string,
  lastEventId: string | undefined,
  { after = -1, incarnation }: { after?: number | undefined; incarnation?: string | undefined },
): { after: number; incarnation?: string | undefined } {
  if (lastEventId === undefined || lastEventId === '') return { after, incarnation };
  const place = parseSessionFrameId(lastEventId, sessionId);
  if (place === undefined) throw refused('Last-Event-ID is no id of an event of this session');
  return { after: place.sequence, incarnation: place.incarnation };
}

function refused(reason: string): InvalidCursor {
  return new InvalidCursor(`${reason}: start with an id that the stream has sent, or without one.`, { reason });
}
