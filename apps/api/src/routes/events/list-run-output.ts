import { RunEventList } from '@runplane/contracts';
import { listRunOutput } from '@runplane/runs';
import type { Route } from '..';
import { EventPageQuery, RunParams } from '../../http/schemas';

export const listRunOutputRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/output',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'listRunOutput',
      summary: 'Read what was said in a run: messages, command output, errors, its end',
      description: 'Follow `cursor` until it is null: a page reads 10,000 events at most and may be short, even empty, before the end.',
      tags: ['events'],
      params: RunParams,
      querystring: EventPageQuery,
      response: { 200: RunEventList },
    },
    handler: (request) => listRunOutput(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
