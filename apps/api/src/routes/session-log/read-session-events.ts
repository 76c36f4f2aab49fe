import { SessionEventPage } from '@runplane/contracts';
import { waitForSessionEvents } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { afterSequence, eventLimit, incarnation, queryInt, SessionParams, wait } from '../../http/schemas';

const place = queryInt(0, Number.MAX_SAFE_INTEGER).optional();
const Query = z.strictObject({
  from: place.meta({ description: 'The first sequence to show' }),
  after: afterSequence,
  before: place.meta({ description: 'Shows the last ones before this sequence' }),
  incarnation,
  limit: eventLimit,
  wait,
});

export const readSessionEventsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/events',
    config: { access: ['sessions:read'], measured: 'waits' },
    schema: {
      operationId: 'readSessionEvents',
      summary: "Read the events of a session's log, or wait for them",
      description:
        'One of `from`, `after` and `before`; none of them: from the start. Ascending, and fewer than asked for where they are large. With `incarnation`, of another life of the id: 410 `other_incarnation`.',
      tags: ['session log'],
      params: SessionParams,
      querystring: Query,
      response: { 200: SessionEventPage },
    },
    handler: (request, reply) => {
      const { wait: seconds, ...query } = request.query;
      const page = { tenantId: request.credential.tenantId, ...request.params, ...query, waitMs: seconds * 1000 };
      return waiters.poll(reply, page.waitMs, (signal) => waitForSessionEvents(db, { ...page, signal }));
    },
  });
};
