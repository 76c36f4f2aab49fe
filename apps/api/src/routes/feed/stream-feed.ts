import { LIST_ROWS_MAX } from '@runplane/contracts';
import { readFeed } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';
import { followFeed } from '../../http/follow-feed';
import { feedFilter, feedStart, LastCursorHeaders, toFeedFilter } from '../../http/schemas';

export const streamFeedRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/feed/stream',
    config: { access: ['feed:read'], measured: 'waits' },
    schema: {
      operationId: 'streamFeed',
      summary: 'Follow the feed as server-sent events',
      description:
        'Starts after `Last-Event-ID`, else after `after`, else now. A frame’s id is its cursor; a frame with an id alone moves the cursor over events that the filter leaves out, and tells at once where `now` is. The feed has no end.',
      tags: ['feed'],
      produces: ['text/event-stream'],
      headers: LastCursorHeaders,
      querystring: z.strictObject({ ...feedFilter, after: feedStart.default('now') }),
    },
    handler: async (request, reply) => {
      const { after, ...query } = request.query;
      const lastSeen = request.headers['last-event-id'];
      const which = { tenantId: request.credential.tenantId, filter: toFeedFilter(query), limit: LIST_ROWS_MAX };
      const from = lastSeen === undefined || lastSeen === '' ? after : lastSeen;
      // Before the stream begins, while a refusal can still be an answer; and `now` is this moment, whenever the first frame goes out.
      const { cursor } = await readFeed(db.sql, { ...which, after: from, limit: 1 });
      const tellsStart = from === 'now';
      await followFeed(reply, { db, waiters, ...which, after: tellsStart ? cursor : from, tellsStart });
    },
  });
};
