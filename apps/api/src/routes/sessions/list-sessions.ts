import { identifier, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, SESSION_LIST_STATES, SessionList } from '@runplane/contracts';
import { listSessions } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, readerId } from '../../http/schemas';

const Query = z.strictObject({
  state: z
    .enum(SESSION_LIST_STATES)
    .default('default')
    .meta({ description: '`default` leaves out sessions that never had a run, and evicted ones; `unread` needs a reader' }),
  projectId: identifier.optional(),
  backendProfile: identifier.optional(),
  readerId,
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listSessionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessions',
      summary: 'List sessions, the last active first',
      description:
        'Follow `cursor` until it is null: a page looks at 10,000 sessions at most and may be short, even empty, before the end. A session that becomes active meanwhile may be missing from later pages.',
      tags: ['sessions'],
      querystring: Query,
      response: { 200: SessionList },
    },
    handler: (request) => listSessions(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
