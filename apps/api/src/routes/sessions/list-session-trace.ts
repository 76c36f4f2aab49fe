import { SessionEventList } from '@runplane/contracts';
import { listSessionTrace } from '@runplane/runs';
import type { Route } from '..';
import { SessionEventPageQuery, SessionParams } from '../../http/schemas';

export const listSessionTraceRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/trace',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionTrace',
      summary: 'Read the events of a session’s run, or of all its runs',
      description:
        'Of the run `runId`, else of the active one, else of the last; `runs=all`: of every run, the oldest first. Follow `cursor` until it is null: a page reads 10,000 events at most and may be short, even empty, before the end.',
      tags: ['sessions'],
      params: SessionParams,
      querystring: SessionEventPageQuery,
      response: { 200: SessionEventList },
    },
    handler: (request) => listSessionTrace(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
