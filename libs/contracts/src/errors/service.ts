import { DomainError } from '../domain-error';

// The database, its transactions, and this process.

/** joinTransaction needs an open transaction: BEGIN first. */
export class NotInTransaction extends DomainError<'not_in_transaction', Record<string, never>> {
  readonly code = 'not_in_transaction';
  constructor(message = 'joinTransaction needs an open transaction: BEGIN first.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** joinTransaction needs READ COMMITTED. */
export class WrongIsolation extends DomainError<'wrong_isolation', { isolation: string }> {
  readonly code = 'wrong_isolation';
}

/** A row stayed locked by another transaction for too long: repeat the call. */
export class LockTimeout extends DomainError<'lock_timeout', Record<string, never>> {
  readonly code = 'lock_timeout';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'A row stayed locked by another transaction for too long: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** No database connection became free in time: repeat the call. */
export class PoolTimeout extends DomainError<'pool_timeout', Record<string, never>> {
  readonly code = 'pool_timeout';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'No database connection became free in time: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** Concurrent transactions stood in each other's way: repeat the call. */
export class TransactionConflict extends DomainError<'transaction_conflict', { attempts: number }> {
  readonly code = 'transaction_conflict';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** The database did not answer; nothing was written: repeat the call. */
export class DatabaseUnavailable extends DomainError<'database_unavailable', Record<string, never>> {
  readonly code = 'database_unavailable';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'The database did not answer; nothing was written: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** The connection broke while the write was being committed: repeat the call with the same key or producer sequence. */
export class OutcomeUnknown extends DomainError<'outcome_unknown', Record<string, never>> {
  readonly code = 'outcome_unknown';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(
    message = 'The connection broke while the write was being committed: repeat the call with the same key or producer sequence.',
    options?: ErrorOptions,
  ) {
    super(message, {}, options);
  }
}

/** This process serves as many waiting requests as it may: repeat the call. */
export class Overloaded extends DomainError<'overloaded', { waitersMax: number }> {
  readonly code = 'overloaded';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** More calls wait for the database than this process may hold; this one was not begun: repeat it. */
export class BacklogFull extends DomainError<'backlog_full', { callsMax: number; bytesMax: number }> {
  readonly code = 'backlog_full';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
}

/** This process is shutting down: repeat the call. */
export class ShuttingDown extends DomainError<'shutting_down', Record<string, never>> {
  readonly code = 'shutting_down';
  override readonly failureKind = 'infra-failed';
  override readonly retryable = true;
  constructor(message = 'This process is shutting down: repeat the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

export type ServiceError =
  | NotInTransaction
  | WrongIsolation
  | LockTimeout
  | PoolTimeout
  | TransactionConflict
  | DatabaseUnavailable
  | OutcomeUnknown
  | Overloaded
  | BacklogFull
  | ShuttingDown;
