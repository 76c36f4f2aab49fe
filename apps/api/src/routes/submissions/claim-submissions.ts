import { ClaimedSubmissions, ClaimSubmissionsBody } from '@runplane/contracts';
import { claimSubmissions, settleSubmissions, waitForSubmissions } from '@runplane/queue';
import type { Route } from '..';
import { sendClaims } from '../../http/claims';

export const claimSubmissionsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'POST',
    url: '/submissions/claims',
    config: { access: ['queue:write'], measured: 'waits' },
    schema: {
      operationId: 'claimSubmissions',
      summary: 'Claim the oldest unfinished submission of each of some sessions, or wait for some',
      description:
        'The longest ready first. Each claim has an epoch, which every later call about it names, and a time: renew it, or the submission goes to somebody else. Nothing else of its session can be claimed until it has ended.',
      tags: ['submissions'],
      body: ClaimSubmissionsBody,
      response: { 200: ClaimedSubmissions },
    },
    handler: async (request, reply) => {
      const { waitSeconds, ...claim } = request.body;
      const { tenantId } = request.credential;
      const wanted = { tenantId, ...claim };
      const waitMs = waitSeconds * 1000;
      const submissions =
        waitMs === 0
          ? await claimSubmissions(db, wanted)
          : await waiters.poll(reply, waitMs, (signal) => waitForSubmissions(db, { ...wanted, waitMs, signal }));
      return sendClaims(reply, submissions, {
        answer: { submissions },
        giveBack: (claimed) =>
          settleSubmissions(db, {
            tenantId,
            settlements: claimed.map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch, outcome: 'released' })),
          }),
      });
    },
  });
};
