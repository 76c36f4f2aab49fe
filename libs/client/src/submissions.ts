import {
  type AcceptSubmission,
  type ClaimedSubmission,
  ClaimedSubmissions,
  type ClaimSubmissions,
  CopiedSession,
  DeletedRun,
  DeletedSession,
  EndedSubmission,
  type EndSubmission,
  type ForkSession,
  LIST_ROWS_MAX,
  newId,
  type ReleaseSubmission,
  RenewedSubmission,
  type RenewSubmission,
  type RenewSubmissions,
  RequeuedSubmission,
  type SettleSubmissions,
  Submission,
  SubmissionCounts,
  SubmissionExplanation,
  SubmissionList,
  SubmissionReceipt,
  type SubmissionVerdict,
  SubmissionVerdicts,
} from '@runplane/contracts';
import { callsOf } from './calls';
import type { CallOptions, Transport } from './transport';

type Page = CallOptions & { cursor?: string | undefined; limit?: number | undefined };

const at = (sessionId: string, operationId: string): string =>
  `/sessions/${encodeURIComponent(sessionId)}/submissions/${encodeURIComponent(operationId)}`;

/** Calls about what is put before sessions, and about the end of sessions and runs. */
export function submissionCalls(transport: Transport) {
  const { call, get, post } = callsOf(transport);

  const listSubmissions = (sessionId: string | undefined, { cursor, limit, ...o }: Page = {}): Promise<SubmissionList> =>
    get(
      sessionId === undefined ? '/submissions' : `/sessions/${encodeURIComponent(sessionId)}/submissions`,
      SubmissionList,
      { cursor, limit },
      o,
    );

  return {
    /** The operation id is made here unless given, so that a repeat after a lost answer gets the receipt of the first call. */
    acceptSubmission: (
      sessionId: string,
      submission: AcceptSubmission,
      { operationId = newId('op'), ...o }: CallOptions & { operationId?: string } = {},
    ): Promise<SubmissionReceipt> =>
      post(`/sessions/${encodeURIComponent(sessionId)}/submissions`, submission, SubmissionReceipt, o, operationId),

    /** Unfinished ones: of a session in their order; without one, of all, the longest accepted first. */
    listSubmissions,

    async *iterateSubmissions(sessionId: string | undefined, o: CallOptions = {}): AsyncGenerator<Submission, void, undefined> {
      for (let cursor: string | undefined; ;) {
        const page = await listSubmissions(sessionId, { cursor, limit: LIST_ROWS_MAX, ...o });
        yield* page.submissions;
        if (page.cursor === null) return;
        cursor = page.cursor;
      }
    },

    countSubmissions: (sessionId: string, o?: CallOptions): Promise<SubmissionCounts> =>
      get(`/sessions/${encodeURIComponent(sessionId)}/submission-counts`, SubmissionCounts, {}, o),

    getSubmission: (sessionId: string, operationId: string, o?: CallOptions): Promise<Submission> =>
      get(at(sessionId, operationId), Submission, {}, o),

    getSubmissionReceipt: (sessionId: string, operationId: string, o?: CallOptions): Promise<SubmissionReceipt> =>
      get(`${at(sessionId, operationId)}/receipt`, SubmissionReceipt, {}, o),

    explainSubmission: (sessionId: string, operationId: string, o?: CallOptions): Promise<SubmissionExplanation> =>
      get(`${at(sessionId, operationId)}/why`, SubmissionExplanation, {}, o),

    endSubmission: (sessionId: string, operationId: string, end: EndSubmission, o?: CallOptions): Promise<EndedSubmission> =>
      post(`${at(sessionId, operationId)}/end`, end, EndedSubmission, o),

    /** Not repeated after a lost answer: a repeat would claim further ones. What was claimed in vain goes to others when the claim ends. */
    async claimSubmissions(
      claim: ClaimSubmissions,
      { waitSeconds, ...o }: CallOptions & { waitSeconds?: number | undefined } = {},
    ): Promise<ClaimedSubmission[]> {
      const body = waitSeconds === undefined ? claim : { ...claim, waitSeconds };
      const { submissions } = await call(
        { method: 'POST', path: '/submissions/claims', body, answer: ClaimedSubmissions, repeatable: false, waitSeconds },
        o,
      );
      return submissions;
    },

    renewSubmission: (sessionId: string, operationId: string, renewal: RenewSubmission, o?: CallOptions): Promise<RenewedSubmission> =>
      post(`${at(sessionId, operationId)}/renew`, renewal, RenewedSubmission, o),

    async renewSubmissions(renewal: RenewSubmissions, o?: CallOptions): Promise<SubmissionVerdict[]> {
      return (await post('/submissions/claims/renew', renewal, SubmissionVerdicts, o)).claims;
    },

    /** Without an error: it was not begun, and the try does not count. */
    releaseSubmission: (sessionId: string, operationId: string, release: ReleaseSubmission, o?: CallOptions): Promise<Submission> =>
      post(`${at(sessionId, operationId)}/release`, release, Submission, o),

    async settleSubmissions(settlements: SettleSubmissions['settlements'], o?: CallOptions): Promise<SubmissionVerdict[]> {
      return (await post('/submissions/claims/settle', { settlements }, SubmissionVerdicts, o)).claims;
    },

    /** Gives a failed one another try, behind everything that its session has. */
    requeueSubmission: (sessionId: string, operationId: string, o?: CallOptions): Promise<RequeuedSubmission> =>
      post(`${at(sessionId, operationId)}/requeue`, undefined, RequeuedSubmission, o),

    /** A session of its own, as this one was up to an event. Sent once: a repeat finds the id in use. */
    forkSession: (sessionId: string, fork: ForkSession, o?: CallOptions): Promise<CopiedSession> =>
      call(
        { method: 'POST', path: `/sessions/${encodeURIComponent(sessionId)}/fork`, body: fork, answer: CopiedSession, repeatable: false },
        o,
      ),

    /** Its lines as text, piece by piece as they come. Errors: ConnectionFailed where the answer was cut. */
    async *exportSession(sessionId: string, { signal }: { signal?: AbortSignal } = {}): AsyncGenerator<string, void, undefined> {
      const never = new AbortController().signal;
      const path = `/sessions/${encodeURIComponent(sessionId)}/export`;
      const response = await transport.open(path, {}, { accept: 'application/x-ndjson' }, signal ?? never);
      const decoder = new TextDecoder();
      for await (const bytes of response.body as AsyncIterable<Uint8Array>) yield decoder.decode(bytes, { stream: true });
      yield decoder.decode();
    },

    /** A session from its lines. Sent once: a repeat finds the id in use. */
    importSession: (lines: string, o?: CallOptions): Promise<CopiedSession> =>
      call(
        {
          method: 'POST',
          path: '/session-imports',
          body: lines,
          contentType: 'application/x-ndjson',
          answer: CopiedSession,
          repeatable: false,
        },
        o,
      ),

    deleteSession: (sessionId: string, { reason, ...o }: CallOptions & { reason?: string } = {}): Promise<DeletedSession> =>
      call(
        {
          method: 'DELETE',
          path: `/sessions/${encodeURIComponent(sessionId)}`,
          query: { reason },
          answer: DeletedSession,
          repeatable: true,
        },
        o,
      ),

    deleteRun: (runId: string, o?: CallOptions): Promise<DeletedRun> =>
      call({ method: 'DELETE', path: `/runs/${encodeURIComponent(runId)}`, answer: DeletedRun, repeatable: true }, o),
  };
}
