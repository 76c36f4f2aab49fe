import { Problem } from '@runplane/contracts';
import type { z } from 'zod';
import { ConnectionFailed, ProblemError, UnexpectedAnswer } from './errors';
import { RETRY_DEFAULT, type RetryPolicy, withRetry } from './retry';

export interface ClientOptions {
  /** Where the API answers, without `/v1`. */
  url: string;
  apiKey: string;
  fetch?: typeof fetch | undefined;
  retry?: Partial<RetryPolicy> | undefined;
  /** Deadline of one attempt of a call; a long poll gets its wait on top. */
  timeoutMs?: number | undefined;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  retry?: Partial<RetryPolicy> | undefined;
}

export interface Call<T> {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  query?: Record<string, string | number | readonly string[] | undefined>;
  body?: unknown;
  /** Of a body that is text already. */
  contentType?: string | undefined;
  idempotencyKey?: string | undefined;
  answer: z.ZodType<T>;
  /** True when a repeat has the effect of one call. Others are sent once. */
  repeatable: boolean;
  /** The server may hold the answer back for so long. */
  waitSeconds?: number | undefined;
}

export interface Transport {
  call<T>(call: Call<T>, options?: CallOptions): Promise<T>;
  /** One attempt at an open-ended answer; the deadline covers its head only. */
  open(path: string, query: Call<unknown>['query'], headers: Record<string, string>, signal: AbortSignal): Promise<Response>;
}

const TIMEOUT_MS_DEFAULT = 15_000;

/** Errors: TypeError, where no call could ever be sent: it would look like a server that is away, and be repeated for as long. */
export function createTransport(client: ClientOptions): Transport {
  assertSendable(client);
  const base = `${client.url.replace(/\/+$/, '')}/v1`;
  const send = client.fetch ?? fetch;
  const authorization = `Bearer ${client.apiKey}`;

  async function request<T>(call: Call<T>, timeoutMs: number, signal: AbortSignal | undefined): Promise<T> {
    const deadline = deadlineSignal(timeoutMs, signal);
    try {
      const response = await send(address(base, call.path, call.query), {
        method: call.method,
        headers: {
          authorization,
          accept: 'application/json',
          ...(call.body === undefined ? {} : { 'content-type': call.contentType ?? 'application/json' }),
          ...(call.idempotencyKey === undefined ? {} : { 'idempotency-key': headerText(call.idempotencyKey) }),
        },
        signal: deadline.signal,
        ...(call.body === undefined
          ? {}
          : { body: typeof call.body === 'string' && call.contentType !== undefined ? call.body : JSON.stringify(call.body) }),
      });
      const text = await response.text();
      if (!response.ok) throw refusal(response, text);
      return parseAnswer(call, response.status, text);
    } catch (error) {
      throw connectionError(error, call, signal);
    } finally {
      deadline.clear();
    }
  }

  return {
    call(call, options = {}) {
      const timeoutMs = (options.timeoutMs ?? client.timeoutMs ?? TIMEOUT_MS_DEFAULT) + (call.waitSeconds ?? 0) * 1_000;
      const attempt = () => request(call, timeoutMs, options.signal);
      const policy = { ...RETRY_DEFAULT, ...client.retry, ...options.retry };
      return withRetry(attempt, call.repeatable ? policy : { ...policy, attemptsMax: 1 }, options.signal);
    },

    async open(path, query, headers, signal) {
      const deadline = deadlineSignal(client.timeoutMs ?? TIMEOUT_MS_DEFAULT, signal);
      try {
        const response = await send(address(base, path, query), { headers: { authorization, ...headers }, signal: deadline.signal });
        if (!response.ok) throw refusal(response, await response.text());
        return response;
      } catch (error) {
        deadline.clear();
        throw connectionError(error, { method: 'GET', path }, signal);
      } finally {
        deadline.stopTimer();
      }
    },
  };
}

function assertSendable({ url, apiKey }: ClientOptions): void {
  if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`url is ${url}: say where the API answers, as http://127.0.0.1:3000`);
  if (!/^[\x21-\x7e]+$/.test(apiKey)) throw new TypeError('apiKey is empty, or has spaces or a line break: give the key alone');
}

/** Aborts with the caller's signal or when the time is over. (AbortSignal.any keeps every derived signal alive on Node 20.) */
function deadlineSignal(timeoutMs: number, signal: AbortSignal | undefined): { signal: AbortSignal; stopTimer(): void; clear(): void } {
  const controller = new AbortController();
  const onAbort = () => controller.abort(signal?.reason);
  if (signal?.aborted === true) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  const timer = setTimeout(() => controller.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
  const stopTimer = () => clearTimeout(timer);
  return {
    signal: controller.signal,
    stopTimer,
    clear() {
      stopTimer();
      signal?.removeEventListener('abort', onAbort);
    },
  };
}

function address(base: string, path: string, query: Call<unknown>['query'] = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    const values = typeof value === 'object' ? value : value === undefined ? [] : [String(value)];
    for (const each of values) search.append(name, each);
  }
  return `${base}${path}${search.size === 0 ? '' : `?${search.toString()}`}`;
}

/** Header values are bytes: an identifier travels as its UTF-8. */
function headerText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

function parseAnswer<T>(call: Call<T>, status: number, text: string): T {
  const answer = call.answer.safeParse(parseJson(text));
  if (answer.success) return answer.data;
  const issue = answer.error.issues[0];
  throw new UnexpectedAnswer(
    `${call.method} ${call.path} answered something else than this client knows: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`,
    status,
    { cause: answer.error },
  );
}

function refusal(response: Response, text: string): ProblemError | UnexpectedAnswer {
  const retryAfterMs = parseRetryAfter(response.headers.get('retry-after'));
  const problem = Problem.safeParse(parseJson(text));
  if (problem.success) return new ProblemError(problem.data, retryAfterMs);
  return new UnexpectedAnswer(`HTTP ${response.status} without a problem document; is this the address of the API?`, response.status, {
    retryAfterMs,
  });
}

function connectionError(error: unknown, call: { method: string; path: string }, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (error instanceof ProblemError || error instanceof UnexpectedAnswer) return error;
  const cause = error instanceof Error ? (error.cause instanceof Error ? error.cause : error) : undefined;
  return new ConnectionFailed(`${call.method} ${call.path}: ${cause?.message ?? String(error)}`, { cause: error });
}

/** Seconds or an HTTP date. */
function parseRetryAfter(value: string | null): number | undefined {
  if (value === null) return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
