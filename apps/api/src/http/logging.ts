import { isDomainError, redactJson, redactText, type JsonObject } from '@runplane/contracts';
import { constraintOf, sqlStateOf } from '@runplane/database';
import type { FastifyServerOptions } from 'fastify';

// What reaches the log: no bodies, no headers, no query strings, and every text through redactText. An error of the database is known by
// its SQLSTATE and constraint alone: its message quotes values, and Prisma's also parameters.

export interface LogOptions {
  readonly level: string;
  /** Where lines go; standard output when absent. */
  readonly stream?: { write(line: string): void } | undefined;
}

/** formatters.log has made them harmless already. */
const unchanged = (value: unknown) => value as never;

/** The logger option of Fastify. */
export function loggerOptions(options: LogOptions | false): FastifyServerOptions['logger'] {
  if (options === false) return false;
  return {
    level: options.level,
    ...(options.stream === undefined ? {} : { stream: options.stream }),
    base: { service: 'runplane-api', pid: process.pid },
    serializers: { req: unchanged, res: unchanged, err: unchanged },
    formatters: { log: describeFields },
    hooks: {
      logMethod(args, method) {
        method.apply(this, describeArguments(args) as typeof args);
      },
    },
  };
}

/** Without a message pino would take the error's own, as it is. */
function describeArguments([first, ...rest]: readonly unknown[]): unknown[] {
  const fields = first instanceof Error ? { err: first } : first;
  const hasError = typeof fields === 'object' && fields !== null && 'err' in fields;
  const texts = hasError && rest.length === 0 ? ['an error'] : rest;
  return [fields, ...texts].map((arg) => (typeof arg === 'string' ? redactText(arg) : arg));
}

/** The fields of one log line, as they may leave the process. */
export function describeFields(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, describeField(name, value)]));
}

function describeField(name: string, value: unknown): unknown {
  if (value instanceof Error) return describeError(value);
  if (name === 'req') return (value as { method?: unknown }).method;
  if (name === 'res') return (value as { statusCode?: unknown }).statusCode;
  return Object.values(redactJson({ [name]: value } as unknown as JsonObject))[0]; // the name may say that the value is a secret
}

export interface DescribedError {
  readonly name: string;
  readonly message: string;
  readonly code?: string;
  readonly sqlState?: string;
  readonly constraint?: string;
  readonly frames?: readonly string[];
  readonly cause?: DescribedError;
}

const CAUSES_MAX = 4;

/** An error for the log: what it is and where it comes from, without the values that it may quote. */
export function describeError(error: unknown, depth = 0): DescribedError {
  if (!(error instanceof Error)) return { name: typeof error, message: redactText(String(error)) };
  const { code } = error as { code?: unknown };
  const sqlState = sqlStateOf(error);
  const constraint = constraintOf(error);
  const frames = error.stack?.split('\n').filter((line) => /^\s+at /.test(line)); // the lines above repeat the message
  return {
    name: error.name,
    message: quotesValues(error) ? 'refused by the database' : redactText(error.message),
    ...(typeof code === 'string' ? { code } : {}),
    ...(sqlState === undefined ? {} : { sqlState }),
    ...(constraint === undefined ? {} : { constraint }),
    ...(frames === undefined || isDomainError(error) ? {} : { frames: frames.map((line) => line.trim()).slice(0, 12) }),
    ...(error.cause === undefined || depth >= CAUSES_MAX ? {} : { cause: describeError(error.cause, depth + 1) }),
  };
}

/** Errors of pg have a severity, unless the connection failed before PostgreSQL answered. */
function quotesValues(error: Error): boolean {
  return 'severity' in error || error.name.startsWith('Prisma') || error.name === 'DriverAdapterError';
}
