import { EVENT_LIST_ROWS_DEFAULT, EVENT_LIST_ROWS_MAX, RunEventPage } from '@runplane/contracts';
import { waitForRunEvents } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { afterSeq, queryInt, RunParams, wait } from '../../http/schemas';

export const listRunEventsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/events',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'listRunEvents',
      summary: 'Read the events of a run after a sequence, or wait for them',
      tags: ['events'],
      params: RunParams,
      querystring: z.strictObject({ after: afterSeq, limit: queryInt(1, EVENT_LIST_ROWS_MAX).default(EVENT_LIST_ROWS_DEFAULT), wait }),
      response: { 200: RunEventPage },
    },
    handler: (request, reply) => {
      const { after, limit, wait: seconds } = request.query;
      const page = { tenantId: request.credential.tenantId, ...request.params, afterSeq: after, limit, waitMs: seconds * 1000 };
      return waiters.poll(reply, page.waitMs, (signal) => waitForRunEvents(db, { ...page, signal }));
    },
  });
};
