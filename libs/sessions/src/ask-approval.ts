import { parseInput, RequestApproval, type AppendedSessionEvents, type NewSessionEvent, type RequestedApproval } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendSessionEvents } from './append-session-events';
import { approvalRequested, type AskApproval } from './ask-decisions';
import { getApproval } from './read-requests';
import type { SessionKey } from './session.sql';

/**
 * The holder of the session lease asks people to approve a call.
 *
 * Input     epoch: of the lease; approvalId: of the caller's own, or made; toolName; arguments (hashed, not stored) or argumentsDigest;
 *           argumentsSummary: what the approver sees, absent the arguments; reason; timeoutSeconds: 1 s to 30 d, default 5 min, from now.
 * Returns   the approval. The same id and content: the approval as it stands now, `replayed: true`.
 * Locks     session head.   Writes: session_events, approvals, session_heads, outbox.
 * Errors    SessionNotFound, SessionDeleted, SessionLeaseLost; ApprovalConflict (the id is another call's), TooManyOpenRequests; InvalidRequest,
 *           InvalidJson (arguments that would have to be repaired), PayloadTooLarge.
 * Emits     approval/requested.
 * Repeat    safe with an id of the caller's own.
 */
export async function requestApproval(tx: Tx, { tenantId, sessionId, ...input }: SessionKey & RequestApproval): Promise<RequestedApproval> {
  const { epoch, ...ask } = parseInput(RequestApproval, input);
  const key = { tenantId, sessionId };
  return askForApproval(tx, key, ask, (event) => appendSessionEvents(tx, { ...key, epoch, events: [event] }));
}

/** The same for whoever has another right to ask: `append` puts the event into the session's log, or finds that it is there. */
export async function askForApproval(
  tx: Tx,
  key: SessionKey,
  ask: AskApproval,
  append: (event: NewSessionEvent) => Promise<AppendedSessionEvents>,
): Promise<RequestedApproval> {
  const { approvalId, event } = approvalRequested(ask);
  const { replayed } = await append(event);
  return { approval: await getApproval(tx, { ...key, approvalId }), replayed };
}
