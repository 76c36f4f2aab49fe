// The door of libs/database: what it means to be in a transaction, and everything that stands on that.

export { emptySql, joinSql, rawSql, sql, textLines, type Sql, type SqlExecutor, type SqlRow, type SqlValue } from './sql';
export { column, maybeRow, oneRow, rows, rowsUnder } from './rows';
export { constraintOf, isConnectionLoss, isRetryable, sqlStateOf } from './sql-state';
export { openDb, type Db, type DbOptions, type ResolvedDbOptions } from './db';
export { eachInOwnTransaction, FeedFloor, inTransaction, RestartTransaction, type TransactionOptions, type Tx } from './tx';
export { joinTransaction, type ForeignTransaction } from './join-transaction';
export {
  compareC,
  inLockOrder,
  insertedRow,
  LOCK_RANK,
  LockLedger,
  LockOrderError,
  newKeyOf,
  takingLock,
  type LockRankName,
} from './lock-order';
export { type ChangeHub, type HubSettings, type HubStats, type Stream, type StreamProbe, type Subscription, type WaitResult } from './hub';
export { Coalescer, type CoalescedWork, type CoalescerStats, type Verdict } from './coalescer';
export { coalescedBounds } from './coalesced-bounds';
export { coalescerOf } from './coalescers';
export { backOffMs, decideClaim, isLive, remainingSince, type ClaimDecision, type Hold } from './claims';
export { claimDueSql, renewClaimSql, retryClaimSql, settleClaimSql, type ClaimTable, type HeldClaim } from './claims.sql';
export { checkStore, isRebaseNeeded, readStore, rebaseStore } from './store';
export { type Store } from './store.sql';
export { health, migrationContract } from './health';
export * from './migrate';
export * from './embedded-postgres';
export { waitFor, type Wait } from './wait-for';
export { announce, executorOf, isTx, type At } from './at';
export { ensureTenant, listTenants, requireTenant, writeRetention, type Tenant } from './tenants';
