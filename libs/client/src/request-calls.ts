import {
  Approval,
  ApprovalList,
  InputRequest,
  InputRequestList,
  newId,
  type RequestApproval,
  RequestedApproval,
  RequestedInput,
  type RequestInput,
  type ResolveApproval,
  ResolvedApproval,
  ResolvedInput,
  type ResolveInput,
} from '@runplane/contracts';
import type { CallOptions, Transport } from './transport';

export interface PendingOptions extends CallOptions {
  sessionId?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface WaitOptions extends CallOptions {
  /** How long the server may hold the answer back, while nobody has decided. */
  waitSeconds?: number | undefined;
}

const id = encodeURIComponent;

/**
 * What is asked of people: by the runner of a run, by the holder of a session lease, and the answers. Ids are made here unless given, so that a
 * repeat after a lost answer asks once.
 */
export function requestCalls(call: Transport['call']) {
  const ask = (path: string, ask: RequestApproval, o?: CallOptions): Promise<RequestedApproval> =>
    call({ method: 'POST', path, body: { approvalId: newId('apr'), ...ask }, answer: RequestedApproval, repeatable: true }, o);
  const question = (path: string, ask: RequestInput, o?: CallOptions): Promise<RequestedInput> =>
    call({ method: 'POST', path, body: { requestId: newId('inp'), ...ask }, answer: RequestedInput, repeatable: true }, o);
  const approval = (path: string, { waitSeconds, ...o }: WaitOptions = {}): Promise<Approval> =>
    call({ method: 'GET', path, query: { wait: waitSeconds }, answer: Approval, repeatable: true, waitSeconds }, o);
  const input = (path: string, { waitSeconds, ...o }: WaitOptions = {}): Promise<InputRequest> =>
    call({ method: 'GET', path, query: { wait: waitSeconds }, answer: InputRequest, repeatable: true, waitSeconds }, o);
  return {
    requestRunApproval: (runId: string, request: RequestApproval, o?: CallOptions) => ask(`/runs/${id(runId)}/approvals`, request, o),
    requestRunInput: (runId: string, request: RequestInput, o?: CallOptions) => question(`/runs/${id(runId)}/input-requests`, request, o),
    getRunApproval: (runId: string, approvalId: string, o?: WaitOptions) => approval(`/runs/${id(runId)}/approvals/${id(approvalId)}`, o),
    getRunInput: (runId: string, requestId: string, o?: WaitOptions) => input(`/runs/${id(runId)}/input-requests/${id(requestId)}`, o),

    requestApproval: (sessionId: string, request: RequestApproval, o?: CallOptions) =>
      ask(`/sessions/${id(sessionId)}/approvals`, request, o),
    requestInput: (sessionId: string, request: RequestInput, o?: CallOptions) =>
      question(`/sessions/${id(sessionId)}/input-requests`, request, o),
    getApproval: (sessionId: string, approvalId: string, o?: WaitOptions) =>
      approval(`/sessions/${id(sessionId)}/approvals/${id(approvalId)}`, o),
    getInputRequest: (sessionId: string, requestId: string, o?: WaitOptions) =>
      input(`/sessions/${id(sessionId)}/input-requests/${id(requestId)}`, o),

    /** Approvals that wait for a decision, of one session or of all. */
    listPendingApprovals: ({ sessionId, cursor, limit, ...o }: PendingOptions = {}): Promise<ApprovalList> =>
      call({ method: 'GET', path: '/approvals', query: { sessionId, cursor, limit }, answer: ApprovalList, repeatable: true }, o),
    listPendingInputs: ({ sessionId, cursor, limit, ...o }: PendingOptions = {}): Promise<InputRequestList> =>
      call({ method: 'GET', path: '/input-requests', query: { sessionId, cursor, limit }, answer: InputRequestList, repeatable: true }, o),

    /** Decides once; repeating the same decision is safe. */
    resolveApproval: (sessionId: string, approvalId: string, decision: ResolveApproval, o?: CallOptions): Promise<ResolvedApproval> =>
      call(
        {
          method: 'POST',
          path: `/sessions/${id(sessionId)}/approvals/${id(approvalId)}/resolve`,
          body: decision,
          answer: ResolvedApproval,
          repeatable: true,
        },
        o,
      ),
    resolveInput: (sessionId: string, requestId: string, decision: ResolveInput, o?: CallOptions): Promise<ResolvedInput> =>
      call(
        {
          method: 'POST',
          path: `/sessions/${id(sessionId)}/input-requests/${id(requestId)}/resolve`,
          body: decision,
          answer: ResolvedInput,
          repeatable: true,
        },
        o,
      ),
  };
}
