import { ApprovalList } from '@runplane/contracts';
import { listPendingApprovals } from '@runplane/sessions';
import type { Route } from '..';
import { PendingQuery } from '../../http/schemas';

export const listPendingApprovalsRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/approvals',
    config: { access: ['sessions:read', 'approvals:resolve'] },
    schema: {
      operationId: 'listPendingApprovals',
      summary: 'List approvals that wait for a decision, the oldest first',
      description: 'Of one session, or of all. Those whose time is over are left out. Follow `cursor` until it is null.',
      tags: ['approvals'],
      querystring: PendingQuery,
      response: { 200: ApprovalList },
    },
    handler: (request) => listPendingApprovals(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
