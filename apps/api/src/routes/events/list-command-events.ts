import { RunEventList } from '@runplane/contracts';
import { listCommandEvents } from '@runplane/runs';
import type { Route } from '..';
import { EventPageQuery, RunCommandParams } from '../../http/schemas';

export const listCommandEventsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/commands/:commandId/events',
    config: { access: ['runs:read'] },
    schema: {
      operationId: 'listCommandEvents',
      summary: 'Read the events that belong to a command',
      description:
        'Its own, those that name it as their target, and the end of the run. Follow `cursor` until it is null: a page reads 10,000 events at most and may be short, even empty, before the end.',
      tags: ['events'],
      params: RunCommandParams,
      querystring: EventPageQuery,
      response: { 200: RunEventList },
    },
    handler: (request) => listCommandEvents(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
