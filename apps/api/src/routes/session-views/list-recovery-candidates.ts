import { LIST_ROWS_DEFAULT, LIST_ROWS_MAX, ListPage, RecoveryCandidateList } from '@runplane/contracts';
import { listRecoveryCandidates } from '@runplane/sessions';
import type { Route } from '..';
import { queryInt } from '../../http/schemas';

const Query = ListPage.extend({ limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });

export const listRecoveryCandidatesRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/recovery-candidates',
    config: { access: ['sessions:read'] },
    schema: {
      operationId: 'listRecoveryCandidates',
      summary: 'List the sessions that a cold start has to look at',
      description: 'A turn is open, input waits with a wake-up, or a person was asked.',
      tags: ['session views'],
      querystring: Query,
      response: { 200: RecoveryCandidateList },
    },
    handler: (request) => listRecoveryCandidates(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
