import { SessionEventList } from '@runplane/contracts';
import { listSessionOutput } from '@runplane/runs';
import type { Route } from '..';
import { SessionEventPageQuery, SessionParams } from '../../http/schemas';

export const listSessionOutputRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/output',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listSessionOutput',
      summary: 'Read what was said in a session: messages, command output, errors, the ends of its runs',
      description:
        'Of the run `runId`, else of the active one, else of the last; `runs=all`: of every run, the oldest first. Follow `cursor` until it is null: a page reads 10,000 events at most and may be short, even empty, before the end.',
      tags: ['sessions'],
      params: SessionParams,
      querystring: SessionEventPageQuery,
      response: { 200: SessionEventList },
    },
    handler: (request) => listSessionOutput(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
