import { Approval } from '@runplane/contracts';
import { waitForApproval } from '@runplane/sessions';
import { z } from 'zod';
import type { Route } from '..';
import { ApprovalParams, wait } from '../../http/schemas';

export const getApprovalRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/approvals/:approvalId',
    config: { access: ['sessions:read', 'approvals:resolve'], measured: 'waits' },
    schema: {
      operationId: 'getApproval',
      summary: 'Read an approval, or wait for its resolution',
      description: 'A wait that ends without one writes nothing and decides nothing.',
      tags: ['approvals'],
      params: ApprovalParams,
      querystring: z.strictObject({ wait }),
      response: { 200: Approval },
    },
    handler: (request, reply) => {
      const call = { tenantId: request.credential.tenantId, ...request.params, waitMs: request.query.wait * 1000 };
      return waiters.poll(reply, call.waitMs, (signal) => waitForApproval(db, { ...call, signal }));
    },
  });
};
