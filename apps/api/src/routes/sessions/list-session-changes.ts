import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, SessionChanges } from '@runplane/contracts';
import { listSessionChanges } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, readerId } from '../../http/schemas';

const Query = z.strictObject({
  after: z.string().default('start').meta({ description: 'A cursor, `start`, or `now`: behind the last change that is there' }),
  readerId,
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

export const listSessionChangesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/session-changes',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionChanges',
      summary: 'Follow the changes of sessions',
      description:
        'Sessions in the order of their last changes, each as it is now. Whoever follows `cursor` sees the last version of every session that changes.',
      tags: ['sessions'],
      querystring: Query,
      response: { 200: SessionChanges },
    },
    handler: (request) => listSessionChanges(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
