import type { Tx } from '@runplane/database';
import { appendAsServer } from './append-as-server';
import { byStamp, requestEnded } from './ask-decisions';
import { listOpenRequests, type OpenRequestScope } from './requests.sql';
import { lockHead } from './session-head.sql';

/**
 * Ends what is still asked of people for whoever goes away: a run, a command, or the whole session (END-1). What was over in time is expired, the
 * rest cancelled.
 *
 * Input     runId, commandId: whose requests; neither: all of the session. A run's are asked under the run's lock, which the caller holds; for
 *           the session's the caller holds the head.
 * Returns   how many it ended.
 * Locks     session head, where there is something to end.   Writes: session_events, approvals, input_requests, session_heads, outbox.
 * Emits     approval/resolved, user-input/resolved: one append for each run and command.
 */
export async function cancelOpenRequests(tx: Tx, { reason, ...scope }: OpenRequestScope & { reason: string }): Promise<number> {
  const { tenantId, sessionId } = scope;
  const before = await listOpenRequests(tx, scope);
  if (before.length === 0) return 0; // most runs ask nobody: no lock for them
  if ((await lockHead(tx, { tenantId, sessionId })) === undefined) return 0;
  const open = await listOpenRequests(tx, scope); // a decision may have come before the lock
  for (const { runId, commandId, requests } of byStamp(open)) {
    const events = requests.map((request) => requestEnded(request, reason));
    await appendAsServer(tx, { tenantId, sessionId }, { events, runId, commandId, evenIfDeleted: true });
  }
  return open.length;
}
