import { ResolveApproval, ResolvedApproval } from '@runplane/contracts';
import { createSessions } from '@runplane/sessions';
import type { Route } from '..';
import { ApprovalParams, deciding } from '../../http/schemas';

export const resolveApprovalRoute: Route = (app, { db }) => {
  const sessions = createSessions(db);
  app.route({
    method: 'POST',
    url: '/sessions/:sessionId/approvals/:approvalId/resolve',
    config: { access: ['approvals:resolve'] },
    schema: {
      operationId: 'resolveApproval',
      summary: 'Approve or reject a call',
      description:
        'Decided once: whoever comes second gets 409 `approval_not_pending` with the state, a repeat of the same decision by the same actor its answer. 409 `approval_expired` when its time is over.',
      tags: ['approvals'],
      params: ApprovalParams,
      body: ResolveApproval,
      response: { 200: ResolvedApproval },
    },
    handler: (request) =>
      sessions.resolveApproval({ tenantId: request.credential.tenantId, ...request.params, ...deciding(request.body, request.credential) }),
  });
};
