import { DatabaseUnavailable, isDomainError, LockTimeout, OutcomeUnknown, PoolTimeout, TransactionConflict } from '@runplane/contracts';
import { isConnectionLoss, isPoolWaitOver, isRetryable, isTransactionExpired, sqlStateOf } from './sql-state';

/** What a lost connection means for the caller: a commit, or a writing statement in autocommit, may have been carried out. */
export type LossMeaning = 'nothing-written' | 'outcome-unknown';

/** No disk, no memory, no connection slot; cancelled or out of time; a server that became read-only by a fail-over. */
const UNAVAILABLE = /^(53...|57014|25006)$/;

/**
 * The error that leaves libs/database: a retryable DomainError for what can happen to any correct statement (waits, conflicts, outages), the
 * error itself for everything else (constraint violations, bugs). The original stays as `cause`, so sqlStateOf and isRetryable see through it.
 */
export function databaseError(error: unknown, loss: LossMeaning): unknown {
  if (isDomainError(error)) return error;
  const options = { cause: error };
  const sqlState = sqlStateOf(error);
  if (isRetryable(error))
    return new TransactionConflict('Concurrent transactions stood in each other’s way: repeat the call.', { attempts: 1 }, options);
  if (sqlState === '55P03') return new LockTimeout(undefined, options);
  if (isPoolWaitOver(error)) return new PoolTimeout(undefined, options);
  if (isTransactionExpired(error))
    return new DatabaseUnavailable('The transaction took longer than its time limit and was rolled back: repeat the call.', options);
  if (isConnectionLoss(error))
    return loss === 'outcome-unknown' ? new OutcomeUnknown(undefined, options) : new DatabaseUnavailable(undefined, options);
  if (sqlState !== undefined && UNAVAILABLE.test(sqlState)) return new DatabaseUnavailable(undefined, options);
  return error;
}
