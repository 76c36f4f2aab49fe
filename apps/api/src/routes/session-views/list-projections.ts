import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListPage, ProjectedValueList, ProjectionKey } from '@runplane/contracts';
import { listProjections } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt } from '../../http/schemas';

const Query = ListPage.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });
const Params = z.strictObject({ key: ProjectionKey });

export const listProjectionsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/projections/:key',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listProjections',
      summary: 'List the values of one projection over all sessions',
      description:
        '`subagentIdentity`, `channelState`, or one that a team registers. Follow `cursor` until it is null. Each part of `channelState` has its newest 200 entries.',
      tags: ['session views'],
      params: Params,
      querystring: Query,
      response: { 200: ProjectedValueList },
    },
    handler: (request) => listProjections(db, { tenantId: request.credential.tenantId, ...request.params, ...request.query }),
  });
};
