import {
  APPROVAL_RESOLUTIONS,
  ApprovalConflict,
  ApprovalExpired,
  ApprovalNotFound,
  ApprovalNotPending,
  fieldOf,
  type ApprovalResolution,
  type SessionLogEvent,
} from '@runplane/contracts';
import { insertApprovals, loadApprovals, LoadedApprovals, resolveApprovals } from './approval.sql';
import { identifierField, integerField, textField } from './fields';
import type { Projection } from './projection';
import { guardRequest, guardResolution, type RequestKind } from './request-guards';
import {
  asking,
  changesOf,
  columnText,
  firstText,
  jsonText,
  requestHash,
  resolving,
  wireTime,
  type RequestState,
  type Resolution,
} from './requests';

// Approvals of tool calls: rows of `approvals`, keyed by session and id.

/** The columns of an approval that its request sets, as text. */
export interface AskedApproval {
  readonly turnId: string;
  readonly stepId: string;
  readonly toolCallId: string;
  readonly operationId: string;
  readonly toolName: string;
  readonly argumentsSummary: string;
  readonly argumentsDigest: string | null;
  readonly reason: string;
  readonly runId: string | null;
  readonly commandId: string | null;
  readonly createdAt: string;
  readonly expiresAt: string;
}

export type ApprovalFold = RequestState<AskedApproval, ApprovalResolution> & { readonly sessionId: string };

const TIMEOUT_SECONDS_DEFAULT = 300;

export const approvalProjection: Projection<ApprovalFold> = {
  name: 'approval',
  version: 1,
  touches: (type) => type === 'approval/requested' || type === 'approval/resolved',
  load: (events, session) =>
    loadApprovals(
      session,
      events.flatMap(({ data }) => identifierField(data, 'approval_id') ?? []),
    ),
  initial(loaded, { sessionId }) {
    if (loaded === undefined) return { sessionId, requests: new Map(), open: 0 };
    const { open, rows } = LoadedApprovals.parse(loaded);
    return { sessionId, open, requests: new Map(rows.map(({ id, ...row }) => [id, { ...row, asked: undefined, isChanged: false }])) };
  },
  guard(state, event) {
    if (event.type === 'approval/requested') guardRequest(APPROVAL, state, event);
    else guardResolution(APPROVAL, state, event);
  },
  apply(state, event) {
    const id = identifierField(event.data, 'approval_id');
    if (id === undefined) return state;
    if (event.type === 'approval/requested') {
      const { sequence, time } = event;
      const expiresAt = time + timeoutMs(event);
      const facts = { contentHash: requestHash(event), sequence, expiresInMs: expiresAt - time };
      return { ...state, ...asking(state, id, askedIn(event, expiresAt), facts) };
    }
    return { ...state, ...resolving(state, id, integerField(event.data, 'expected_revision') ?? 0, resolutionIn(event)) };
  },
  writes(state) {
    const { asked, resolved } = changesOf(state);
    return [...(asked.length === 0 ? [] : [insertApprovals(asked)]), ...(resolved.length === 0 ? [] : [resolveApprovals(resolved)])];
  },
};

const APPROVAL: RequestKind<ApprovalResolution> = {
  noun: 'approval',
  nouns: 'approvals',
  idField: 'approval_id',
  resolutionField: 'resolution',
  decisions: ['approved', 'rejected'],
  resolutionIn,
  refusals: {
    conflict: (sessionId, approvalId, state) =>
      new ApprovalConflict(`Approval ${approvalId} was asked for before: a call that changed needs one of its own.`, {
        sessionId,
        approvalId,
        state,
      }),
    notFound: (sessionId, approvalId) =>
      new ApprovalNotFound(`Session ${sessionId} has no approval ${approvalId}.`, { sessionId, approvalId }),
    notPending: (sessionId, approvalId, resolved) =>
      new ApprovalNotPending(`Approval ${approvalId} is ${resolved.state} already.`, { sessionId, approvalId, ...resolved }),
    expired: (sessionId, approvalId) => new ApprovalExpired(`The time of approval ${approvalId} is over.`, { sessionId, approvalId }),
  },
};

/** A fraction of a millisecond is dropped; what is no time, or below 0, is none. */
function timeoutMs({ data }: SessionLogEvent): number {
  const seconds = fieldOf(data, 'timeout_seconds');
  return Math.trunc(Math.max(0, typeof seconds === 'number' ? seconds : TIMEOUT_SECONDS_DEFAULT) * 1000);
}

function askedIn({ data, turnId, stepId, runId, commandId, time }: SessionLogEvent, expiresAt: number): AskedApproval {
  const text = (name: string): string => columnText(fieldOf(data, name)) ?? '';
  const digest = textField(data, 'arguments_digest');
  return {
    turnId: firstText(columnText(fieldOf(data, 'turn_id')), turnId),
    stepId: firstText(columnText(fieldOf(data, 'step_id')), stepId),
    toolCallId: text('tool_call_id'),
    operationId: text('operation_id'),
    toolName: text('tool_name'),
    argumentsSummary: jsonText(data, 'arguments_summary', {}),
    argumentsDigest: digest !== undefined && /^[0-9a-f]{64}$/.test(digest) ? digest : null,
    reason: firstText(columnText(fieldOf(data, 'reason')), 'approval required'),
    runId,
    commandId,
    createdAt: wireTime(time),
    expiresAt: wireTime(expiresAt),
  };
}

/** What is no resolution we know approves nothing. */
function resolutionIn({ data, time, sequence }: SessionLogEvent): Resolution<ApprovalResolution> {
  const word = textField(data, 'resolution');
  return {
    state: APPROVAL_RESOLUTIONS.find((known) => known === word) ?? 'rejected',
    value: null,
    actor: jsonText(data, 'actor', {}),
    reason: columnText(fieldOf(data, 'reason')) ?? null,
    at: time,
    sequence,
  };
}
