import {
  DecidingActor,
  freeText,
  parseInput,
  ResolveApproval,
  ResolveInput,
  type ResolvedApproval,
  type ResolvedInput,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { appendAsServer } from './append-as-server';
import { getApproval, getInputRequest } from './read-requests';
import type { ApprovalKey, InputRequestKey } from './requests.sql';

// The decisions of people: a compare-and-set of a pending request under the lock of the session's head. What it loses to (another decision, the
// end of its run, its time) is told by the refusal.

/**
 * Approves or rejects.
 *
 * Input     resolution; revision: that was looked at, 0 while it is pending; actor: who decides; reason: up to 500 code points are kept.
 * Returns   the approval. `replayed`: the same actor has decided the same before.
 * Locks     session head.   Writes: session_events, approvals, session_heads, outbox.
 * Errors    ApprovalNotFound; ApprovalNotPending with its present state; ApprovalExpired: its time is over by the database's clock behind the lock,
 *           and only the sweeper ends it; DecisionOutdated; InvalidRequest.
 * Emits     approval/resolved, stamped with the run and command that asked.
 * Repeat    safe.
 */
export async function resolveApproval(
  tx: Tx,
  { tenantId, sessionId, approvalId, actor, ...input }: ApprovalKey & ResolveApproval & { actor: DecidingActor },
): Promise<ResolvedApproval> {
  const { resolution, revision, reason } = parseInput(ResolveApproval, input);
  const key = { tenantId, sessionId, approvalId };
  const { runId, commandId } = await getApproval(tx, key);
  const decision = { approval_id: approvalId, resolution, ...decided({ revision, actor, reason }) };
  const events = [{ type: 'approval/resolved', data: decision }];
  const { replayed } = await appendAsServer(tx, key, { events, runId, commandId });
  return { approval: await getApproval(tx, key), replayed };
}

/**
 * Answers or declines a request for input.
 *
 * Input     outcome; value: of an answer, which has to fit the request's schema; the rest as resolveApproval.
 * Locks     session head.   Writes: session_events, input_requests, session_heads, outbox.
 * Errors    InputRequestNotFound, InputRequestNotPending, InputRequestExpired, DecisionOutdated; InvalidInputValue; InvalidRequest, InvalidJson,
 *           PayloadTooLarge.
 * Emits     user-input/resolved, stamped with the run and command that asked.
 * Repeat    safe.
 */
export async function resolveInput(
  tx: Tx,
  { tenantId, sessionId, requestId, actor, ...input }: InputRequestKey & ResolveInput & { actor: DecidingActor },
): Promise<ResolvedInput> {
  const { outcome, value = null, revision, reason } = parseInput(ResolveInput, input);
  const key = { tenantId, sessionId, requestId };
  const { runId, commandId } = await getInputRequest(tx, key);
  const decision = { request_id: requestId, outcome, value, ...decided({ revision, actor, reason }) };
  const events = [{ type: 'user-input/resolved', data: decision }];
  const { replayed } = await appendAsServer(tx, key, { events, runId, commandId });
  return { request: await getInputRequest(tx, key), replayed };
}

function decided({ revision, actor, reason }: { revision: number; actor: DecidingActor; reason: string | undefined }) {
  const { type, id, name } = parseInput(DecidingActor, actor);
  return {
    expected_revision: revision,
    actor: { type, id, ...(name === undefined ? {} : { name }) },
    ...(reason === undefined ? {} : { reason: freeText(reason) }),
  };
}
