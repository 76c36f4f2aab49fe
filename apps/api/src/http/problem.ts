import {
  HTTP_BODY_BYTES_MAX,
  InvalidRequest,
  isDomainError,
  PayloadTooLarge,
  redactText,
  type DomainError,
  type JsonValue,
  type Problem,
  type RunClaimed,
  type SessionBusy,
  type SessionLeased,
  type StorageEvicting,
} from '@runplane/contracts';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { FRAMEWORK_REFUSALS, STATUS_BY_CODE, UNREADABLE_BODY } from '../error-status';

/** An answer in the form of RFC 9457. */
export interface ProblemAnswer {
  readonly problem: Problem & { status: number };
  /** Whole seconds, where it is known when a repeat may succeed. */
  readonly retryAfterSeconds: number | undefined;
}

/** Which request it answers; `instance` is the path alone, since a query may hold anything. */
export interface ProblemContext {
  readonly requestId: string;
  readonly instance: string;
}

/** Anything thrown as a problem: refusals with what they may show, everything else as a 500 that says nothing. */
export function toProblem(error: unknown, context: ProblemContext): ProblemAnswer {
  if (hasZodFastifySchemaValidationErrors(error)) return refusalProblem(invalidRequest(error), context);
  if (isDomainError(error)) return refusalProblem(error, context);
  const code = textField(error, 'code');
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return refusalProblem(bodyTooLarge(), context);
  const known = FRAMEWORK_REFUSALS[code ?? ''];
  if (known !== undefined) return frameworkProblem(known, context);
  const status = (error as { statusCode?: unknown } | undefined)?.statusCode;
  if (typeof status === 'number' && status >= 400 && status < 500) {
    return frameworkProblem(
      { status, code: 'invalid_request', detail: status === 400 ? UNREADABLE_BODY : 'The request was refused.' },
      context,
    );
  }
  return internalProblem(context);
}

/** What to repeat, what to change, or when to come back, of a refusal. */
function refusalProblem(error: DomainError, context: ProblemContext): ProblemAnswer {
  const status = (STATUS_BY_CODE as Record<string, number>)[error.code];
  if (status === undefined || status === 500) return internalProblem(context);
  return {
    problem: {
      ...frame(error.code, status, context),
      detail: redactText(error.message),
      failureKind: error.failureKind,
      retryable: error.retryable,
      data: error.data as JsonValue,
    },
    retryAfterSeconds: status === 503 ? 1 : retryAfter(error),
  };
}

function frameworkProblem(
  { status, code, detail }: { status: number; code: string; detail: string },
  context: ProblemContext,
): ProblemAnswer {
  return {
    problem: { ...frame(code, status, context), detail, failureKind: 'schema-invalid', retryable: false },
    retryAfterSeconds: undefined,
  };
}

function internalProblem(context: ProblemContext): ProblemAnswer {
  const detail = 'The server could not answer this request; its log has the reason under the request id.';
  return {
    problem: { ...frame('internal_error', 500, context), detail, failureKind: 'infra-failed', retryable: false },
    retryAfterSeconds: undefined,
  };
}

function frame(code: string, status: number, { requestId, instance }: ProblemContext) {
  const words = code.replaceAll('_', ' ');
  return { type: `urn:runplane:error:${code}`, title: `${words[0]?.toUpperCase()}${words.slice(1)}`, status, instance, code, requestId };
}

function retryAfter(error: DomainError): number | undefined {
  const { staleInMs } = error.data as Partial<SessionBusy['data']>;
  const { leaseRemainingMs } = error.data as Partial<RunClaimed['data'] | SessionLeased['data'] | StorageEvicting['data']>;
  const held = error.code === 'run_claimed' || error.code === 'storage_evicting' || error.code === 'session_leased';
  const ms = error.code === 'session_busy' ? staleInMs : held ? leaseRemainingMs : undefined;
  return ms == null ? undefined : Math.max(1, Math.ceil(ms / 1000));
}

const ISSUES_MAX = 20;

function invalidRequest(error: {
  validation: { instancePath: string; message?: string | undefined }[];
  validationContext?: string | undefined;
}) {
  const place = error.validationContext ?? 'request';
  const issues = error.validation.slice(0, ISSUES_MAX).map(({ instancePath, message }) => ({
    path: redactText(`${place}${instancePath === '/' ? '' : instancePath}`).slice(0, 200),
    message: redactText(message ?? 'is not valid').slice(0, 300),
  }));
  const [first] = issues;
  return new InvalidRequest(`The request is not valid: ${first?.path}: ${first?.message}`, { issues });
}

function bodyTooLarge(): PayloadTooLarge {
  return new PayloadTooLarge(`The body is larger than ${HTTP_BODY_BYTES_MAX} bytes: send less at a time.`, {
    bytesMax: HTTP_BODY_BYTES_MAX,
  });
}

function textField(error: unknown, name: string): string | undefined {
  const value: unknown = typeof error === 'object' && error !== null ? (error as Record<string, unknown>)[name] : undefined;
  return typeof value === 'string' ? value : undefined;
}
