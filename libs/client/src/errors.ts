import type { ErrorCode, InterruptingTurn, JsonValue, Problem } from '@runplane/contracts';

/** The server refused the call, or could not serve it: its problem+json, typed. */
export class ProblemError extends Error {
  readonly status: number;
  /** One of contracts' ErrorCode, or a code of a newer server. */
  readonly code: string;
  readonly failureKind: string;
  /** The same call may succeed later without any change. */
  readonly retryable: boolean;
  readonly data: JsonValue | undefined;
  readonly retryAfterMs: number | undefined;
  readonly requestId: string | undefined;

  constructor(problem: Problem, retryAfterMs?: number) {
    super(problem.detail ?? problem.title);
    this.name = 'ProblemError';
    this.status = problem.status;
    this.code = problem.code;
    this.failureKind = problem.failureKind;
    this.retryable = problem.retryable;
    this.data = problem.data;
    this.retryAfterMs = retryAfterMs;
    this.requestId = problem.requestId;
  }
}

/** No whole answer came: refused or broken connection, or the deadline of the attempt. Whether the server acted is unknown. */
export class ConnectionFailed extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ConnectionFailed';
  }
}

/** An answer came that this API does not give: a proxy's page, a wrong URL, a broken stream. */
export class UnexpectedAnswer extends Error {
  readonly status: number;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, status: number, options?: ErrorOptions & { retryAfterMs?: number | undefined }) {
    super(message, options);
    this.name = 'UnexpectedAnswer';
    this.status = status;
    this.retryAfterMs = options?.retryAfterMs;
  }
}

/** The turn that is to be interrupted has not ended in the time that the call had. Its cancel goes on; the same call with the same key may be made again. */
export class StillInterrupting extends Error {
  readonly interrupting: InterruptingTurn;

  constructor(interrupting: InterruptingTurn) {
    super(`Run ${interrupting.runId} of session ${interrupting.sessionId} is still being cancelled.`);
    this.name = 'StillInterrupting';
    this.interrupting = interrupting;
  }
}

/** True for a refusal with one of these codes. */
export function isProblem(error: unknown, ...codes: ErrorCode[]): error is ProblemError {
  return error instanceof ProblemError && (codes as string[]).includes(error.code);
}

/**
 * Trouble between client and server that passes: no connection, an overloaded or restarting server, a gateway without one. A retryable
 * 409 (busy session, claimed run) is not: it says something about the world that the caller has to decide upon.
 */
export function isPassing(error: unknown): boolean {
  if (error instanceof ConnectionFailed) return true;
  if (error instanceof ProblemError) return error.retryable && (error.status === 429 || error.status >= 500);
  return error instanceof UnexpectedAnswer && [429, 502, 503, 504].includes(error.status);
}
