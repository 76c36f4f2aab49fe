import { setTimeout as sleep } from 'node:timers/promises';
import { OutcomeUnknown, TransactionConflict, type SessionProjection } from '@runplane/contracts';
import { backOffMs } from './claims';
import { databaseError } from './database-error';
import type { Db } from './db';
import { queryPrisma } from './executors';
import type { Stream } from './hub';
import { LockLedger } from './lock-order';
import type { SqlExecutor } from './sql';
import { isRetryable, isTransactionExpired, sqlStateOf } from './sql-state';

// What it means to be in a transaction. READ COMMITTED with explicit locks (openDb makes it the default of every connection, so no
// SET TRANSACTION is sent); only SQL and pure code inside; hints leave after COMMIT. Only inTransaction and joinTransaction make a Tx.

/** Keeps a bare client, or anything else with a `query`, from passing as a Tx. Not exported by the library's door. */
export const brand: unique symbol = Symbol('Tx');

/** An open transaction. The first parameter of every operation. */
export interface Tx extends SqlExecutor {
  readonly [brand]: true;
  readonly locks: LockLedger;
  readonly feed: FeedFloor;
  /** Of the store handle: an append in this transaction feeds them. */
  readonly projections: readonly SessionProjection[];
  /** After COMMIT, and only then, whoever waits for the stream is told. */
  changed(stream: Stream): void;
}

/** The greatest `last_tx` of the aggregate rows locked so far: no event of this transaction may stand in the feed below it (FEED-1). */
export class FeedFloor {
  #value = 0n;

  get value(): bigint {
    return this.#value;
  }

  raise(lastTx: bigint): void {
    if (lastTx > this.#value) this.#value = lastTx;
  }
}

/** A Tx together with what its owner needs to end it. */
export interface OpenTx {
  readonly tx: Tx;
  readonly changedStreams: ReadonlySet<Stream>;
  /** The first error of a statement: PostgreSQL has aborted the transaction then, whatever became of the error. */
  readonly aborted: unknown;
  end(): void;
}

/** Makes a Tx of something that runs statements in an open transaction; every use after `end` fails. */
export function openTx(run: SqlExecutor['query'], { projections }: { projections: readonly SessionProjection[] }): OpenTx {
  const changedStreams = new Set<Stream>();
  let aborted: unknown;
  let ended = false;
  const assertOpen = (): void => {
    if (ended) throw new Error('this transaction has ended: an await is missing, or the Tx was kept beyond its work');
  };
  const tx: Tx = {
    [brand]: true,
    locks: new LockLedger(),
    feed: new FeedFloor(),
    projections,
    async query(statement) {
      assertOpen();
      try {
        return await run(statement);
      } catch (error) {
        if (sqlStateOf(error) !== undefined) aborted ??= error;
        throw databaseError(error, 'nothing-written');
      }
    },
    changed(stream) {
      assertOpen();
      changedStreams.add(stream);
    },
  };
  return {
    tx,
    changedStreams,
    get aborted() {
      return aborted;
    },
    end() {
      ended = true;
    },
  };
}

/**
 * Thrown by an operation that must start over in a new transaction, since what it read before a lock has changed meanwhile. In a joined
 * transaction nothing starts over: there it is the retryable TransactionConflict that it extends.
 */
export class RestartTransaction extends TransactionConflict {
  constructor(message = 'what was read before a lock has changed: start over') {
    super(message, { attempts: 1 });
  }
}

export interface TransactionOptions {
  attempts?: number | undefined;
  /** How long the transaction may be open. Prisma looks between statements; lock_timeout and statement_timeout bound each of them. */
  timeoutMs?: number | undefined;
  /** How long to wait for a connection; default: as each statement does (`connectTimeoutMs`). */
  maxWaitMs?: number | undefined;
}

const RETRY_BACK_OFF = { baseMs: 15, maxMs: 500 };

/**
 * Runs `work` in a transaction: commits what it wrote and returns its value, or rolls everything back and throws.
 *
 * Repeat    `work` runs again, in a new transaction, after a serialization failure, a deadlock or RestartTransaction: it must not close over
 *           mutable state. Nothing else is repeated.
 * Errors    LockTimeout, PoolTimeout, TransactionConflict (all attempts used), DatabaseUnavailable (nothing was written), OutcomeUnknown
 *           (the connection broke at COMMIT); all retryable. Everything else as `work` threw it.
 */
export async function inTransaction<T>(db: Db, work: (tx: Tx) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
  const { attempts = 4, timeoutMs = 10_000, maxWaitMs = db.options.connectTimeoutMs } = options;
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await attemptTransaction(db, work, { timeout: timeoutMs, maxWait: maxWaitMs });
    if (outcome.kind === 'committed') return outcome.value;
    if (outcome.kind === 'failed') throw outcome.error;
    if (attempt >= attempts) {
      throw new TransactionConflict(
        'Concurrent transactions stood in each other’s way: repeat the call.',
        { attempts },
        { cause: outcome.error },
      );
    }
    await sleep(backOffMs(attempt, RETRY_BACK_OFF));
  }
}

type Outcome<T> = { kind: 'committed'; value: T } | { kind: 'failed' | 'start-over'; error: unknown };

async function attemptTransaction<T>(
  db: Db,
  work: (tx: Tx) => Promise<T>,
  limits: { timeout: number; maxWait: number },
): Promise<Outcome<T>> {
  const state: { open?: OpenTx; committing: boolean } = { committing: false };
  try {
    const value = await db.prisma.$transaction(async (client) => {
      const open = openTx((statement) => queryPrisma(client, statement), db.options);
      state.open = open;
      try {
        const result = await work(open.tx);
        // COMMIT of an aborted transaction rolls back and reports success.
        if (open.aborted !== undefined)
          throw new Error('a statement failed, and the operation went on as if it had not', { cause: open.aborted });
        state.committing = true;
        return result;
      } finally {
        open.end();
      }
    }, limits);
    db.changed([...(state.open?.changedStreams ?? [])]);
    return { kind: 'committed', value };
  } catch (error) {
    if (error instanceof RestartTransaction || isRetryable(error) || isRetryable(state.open?.aborted)) return { kind: 'start-over', error };
    return { kind: 'failed', error: state.committing ? commitError(error) : databaseError(error, 'nothing-written') };
  }
}

/** Only an answer of PostgreSQL, or Prisma's own rollback, says that a COMMIT did not happen. */
function commitError(error: unknown): unknown {
  if (sqlStateOf(error) === undefined && !isTransactionExpired(error)) return new OutcomeUnknown(undefined, { cause: error });
  return databaseError(error, 'outcome-unknown');
}

type Operations = Record<string, (tx: Tx, ...args: never[]) => Promise<unknown>>;
type OwnTransaction<Operation> = Operation extends (tx: Tx, ...args: infer Args) => Promise<infer Result>
  ? (...args: Args) => Promise<Result>
  : never;

/** Makes the one-call form of operations: each call in a transaction of its own. */
export function eachInOwnTransaction<Ops extends Operations>(db: Db, operations: Ops): { [Name in keyof Ops]: OwnTransaction<Ops[Name]> } {
  const facade = Object.entries(operations).map(([name, operation]) => [
    name,
    (...args: never[]) => inTransaction(db, (tx) => operation(tx, ...args)),
  ]);
  return Object.fromEntries(facade) as { [Name in keyof Ops]: OwnTransaction<Ops[Name]> };
}
