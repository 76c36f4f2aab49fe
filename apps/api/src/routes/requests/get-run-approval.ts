import { Approval } from '@runplane/contracts';
import { waitForRunApproval } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { RunApprovalParams, wait } from '../../http/schemas';

export const getRunApprovalRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/approvals/:approvalId',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'getRunApproval',
      summary: 'Read an approval that a run has asked for, or wait for its resolution',
      description: 'A wait that ends without one writes nothing and decides nothing.',
      tags: ['approvals'],
      params: RunApprovalParams,
      querystring: z.strictObject({ wait }),
      response: { 200: Approval },
    },
    handler: (request, reply) => {
      const call = { tenantId: request.credential.tenantId, ...request.params, waitMs: request.query.wait * 1000 };
      return waiters.poll(reply, call.waitMs, (signal) => waitForRunApproval(db, { ...call, signal }));
    },
  });
};
