// What went wrong, whatever shape it arrives in: an error of pg, a known request error of Prisma (model call or raw call, this version's
// or an older one's), a bare DriverAdapterError (at COMMIT), or any of these as the `cause` of another error.

interface AdapterCause {
  readonly kind?: string;
  readonly originalCode?: string;
  readonly originalMessage?: string;
  readonly constraint?: { readonly index?: string };
}

/** What one error in a chain says by itself. */
interface Facts {
  readonly message: string;
  /** A code of Prisma (P2010), Node (ECONNRESET) or PostgreSQL. */
  readonly code: string | undefined;
  readonly sqlState: string | undefined;
  readonly constraint: string | undefined;
  readonly kind: string | undefined;
}

const CHAIN_MAX = 8;
const SQL_STATE = /^[0-9A-Z]{5}$/;

function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function factsOf(error: object): Facts {
  const fields = error as {
    code?: unknown;
    severity?: unknown;
    constraint?: unknown;
    message?: unknown;
    meta?: unknown;
    name?: unknown;
    cause?: unknown;
  };
  const meta = fields.meta as { code?: unknown; driverAdapterError?: { cause?: AdapterCause } } | undefined;
  const adapter =
    meta?.driverAdapterError?.cause ?? (fields.name === 'DriverAdapterError' ? (fields.cause as AdapterCause | undefined) : undefined);
  // A severity marks an error of PostgreSQL itself: codes of Prisma and Node have five characters too (P2010, EPIPE).
  const own = typeof fields.severity === 'string' ? text(fields.code) : undefined;
  const sqlState = adapter?.originalCode ?? own ?? text(meta?.code);
  const message = adapter?.originalMessage ?? text(fields.message) ?? '';
  return {
    message,
    code: text(fields.code),
    sqlState: sqlState !== undefined && SQL_STATE.test(sqlState) ? sqlState : undefined,
    constraint:
      text(fields.constraint) ??
      adapter?.constraint?.index ??
      (sqlState?.startsWith('23') ? /constraint "([^"]+)"/.exec(message)?.[1] : undefined),
    kind: adapter?.kind,
  };
}

/** The error and what caused it, outermost first. */
function chainOf(error: unknown): Facts[] {
  const chain: Facts[] = [];
  const seen = new Set<unknown>();
  const queue: unknown[] = [error];
  while (queue.length > 0 && chain.length < CHAIN_MAX) {
    const next = queue.shift();
    if (typeof next !== 'object' || next === null || seen.has(next)) continue;
    seen.add(next);
    chain.push(factsOf(next));
    queue.push((next as { cause?: unknown }).cause);
    if (next instanceof AggregateError) queue.push(...(next.errors as unknown[])); // one error per address that was tried
  }
  return chain;
}

function first<T>(error: unknown, pick: (facts: Facts) => T | undefined): T | undefined {
  for (const facts of chainOf(error)) {
    const found = pick(facts);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The SQLSTATE behind an error; undefined where PostgreSQL did not answer. */
export function sqlStateOf(error: unknown): string | undefined {
  return first(error, (facts) => facts.sqlState);
}

/** The constraint that an integrity violation (class 23) names. */
export function constraintOf(error: unknown): string | undefined {
  return first(error, (facts) => facts.constraint);
}

/** True for what a new transaction may survive: a serialization failure or a deadlock. */
export function isRetryable(error: unknown): boolean {
  return chainOf(error).some(({ sqlState, code }) => sqlState === '40001' || sqlState === '40P01' || code === 'P2034');
}

const LOST_CODES = new Set(
  'ECONNRESET ECONNREFUSED ECONNABORTED EPIPE ETIMEDOUT ENOTFOUND EAI_AGAIN EHOSTUNREACH ENETUNREACH ENETDOWN P1001 P1002 P1008 P1017'.split(
    ' ',
  ),
);
const LOST_KINDS = new Set(['DatabaseNotReachable', 'ConnectionClosed', 'SocketTimeout', 'TlsConnectionError']);
const LOST_STATES = /^(08...|57P0[1-5]|25P03)$/; // connection exceptions, shutdowns, idle time-outs: the session is gone
const LOST_MESSAGES =
  /^(Connection terminated|Client has encountered a connection error|Client was closed|Query read timeout|timeout expired|Cannot use a pool after)/;

/** True when the connection is gone or was never there, so that a statement in flight may or may not have been carried out. */
export function isConnectionLoss(error: unknown): boolean {
  return chainOf(error).some(
    ({ code, kind, sqlState, message }) =>
      (code !== undefined && LOST_CODES.has(code)) ||
      (kind !== undefined && LOST_KINDS.has(kind)) ||
      (sqlState !== undefined && LOST_STATES.test(sqlState)) ||
      LOST_MESSAGES.test(message),
  );
}

/** True when no connection of the pool became free in time: nothing was sent. */
export function isPoolWaitOver(error: unknown): boolean {
  return chainOf(error).some(
    ({ code, message }) =>
      message === 'timeout exceeded when trying to connect' ||
      (code === 'P2028' && message.includes('Unable to start a transaction in the given time')),
  );
}

/** True when Prisma has rolled back a transaction because it took longer than its time limit. */
export function isTransactionExpired(error: unknown): boolean {
  return chainOf(error).some(({ code, message }) => code === 'P2028' && !message.includes('Unable to start'));
}
