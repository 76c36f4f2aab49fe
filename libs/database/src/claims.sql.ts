import { emptySql, joinSql, rawSql, sql, type Sql } from './sql';

// Claim, renew, settle and retry for every table whose rows are owned for a time (OWN-1, OWN-2). Such a table has the columns owner, epoch,
// expires_at, attempts, ready_at, last_error and a state. `ready_at` is the moment from which a row may be claimed: of a waiting row its due
// time, of a claimed one the end of its lease, so one partial index on (ready_at, …) serves both.
//
// Each statement locks first and judges the clock afterwards. What a claim needs of other tables is read by a second statement.

export interface ClaimTable {
  readonly table: `runplane.${string}` | `public.${string}`;
  /** The primary key; text columns. */
  readonly key: readonly string[];
  readonly stateColumn: string;
  /** Of the state column, to write its words as constants: only then does the partial index fit. */
  readonly stateType: string;
  /** States of rows that wait to be claimed. */
  readonly openStates: readonly string[];
  readonly claimedState: string;
  /** A row claimed so often is not claimed again: its owner ends it, with an event. */
  readonly attemptsMax: number;
}

/** One holder's claim of one row. */
export interface HeldClaim {
  /** Values of the table's key, in its order. */
  readonly key: readonly string[];
  readonly owner: string;
  readonly epoch: number;
}

const name = (identifier: string): Sql => {
  if (!/^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$/.test(identifier)) throw new Error(`${identifier} is not a name for a statement`);
  return rawSql(identifier);
};
const word = (table: ClaimTable, state: string): Sql => {
  if (!/^[a-z][a-z0-9_-]*$/.test(state)) throw new Error(`${state} is not a word for a statement`);
  return sql`${rawSql(`'${state}'`)}::${name(table.stateType)}`;
};
const count = (value: number): Sql => {
  if (!Number.isSafeInteger(value)) throw new Error(`${value} is not a count for a statement`);
  return rawSql(String(value));
};
const keyColumns = (table: ClaimTable, of?: string): Sql =>
  joinSql(table.key.map((column) => name(of === undefined ? column : `${of}.${column}`)));
const sameKey = (table: ClaimTable, of: string): Sql =>
  joinSql(
    table.key.map((column) => sql`t.${name(column)} = ${name(`${of}.${column}`)}`),
    ' AND ',
  );
const milliseconds = (ms: number): Sql => sql`${ms}::int * interval '1 millisecond'`;

/**
 * Claims up to `limit` due rows: waiting ones, and claimed ones whose lease has ended. Rows that somebody else has locked are passed over.
 * An empty result: nothing is due. The order of the result is not the order of the claim.
 *
 * `orderBy` and `where` name columns of the table; they and the index must agree, tie-breaker included.
 */
export function claimDueSql(
  table: ClaimTable,
  claim: { owner: string; leaseMs: number; limit: number; orderBy: Sql; returning: Sql; where?: Sql | undefined },
): Sql {
  const claimable = [...table.openStates, table.claimedState].map((state) => word(table, state));
  // The limit is part of the text: a plan for any limit would read and sort the whole backlog.
  // The sub-select makes the clock one value, which an index condition can use; the bare function would look at every waiting row.
  // MATERIALIZED keeps a plan from running the limited part more than once.
  return sql`WITH due AS MATERIALIZED (
      SELECT ${keyColumns(table)}
        FROM ${name(table.table)}
       WHERE ${name(table.stateColumn)} IN (${joinSql(claimable)})
         AND attempts < ${count(table.attemptsMax)}
         AND ready_at <= (SELECT runplane.app_now())
         ${claim.where === undefined ? emptySql : sql`AND (${claim.where})`}
       ORDER BY ${claim.orderBy}
       LIMIT ${count(claim.limit)}
         FOR NO KEY UPDATE SKIP LOCKED
    ), locked AS MATERIALIZED (
      SELECT ${keyColumns(table)}, runplane.app_now() AS now FROM due
    )
    UPDATE ${name(table.table)} AS t
       SET ${name(table.stateColumn)} = ${word(table, table.claimedState)},
           owner = ${claim.owner}::text,
           epoch = t.epoch + 1,
           attempts = t.attempts + 1,
           expires_at = locked.now + ${milliseconds(claim.leaseMs)},
           ready_at = locked.now + ${milliseconds(claim.leaseMs)}
      FROM locked
     WHERE ${sameKey(table, 'locked')}
       AND t.ready_at <= locked.now
    RETURNING ${claim.returning}`;
}

/** The beginning of a statement by a holder: `held` has the row, with `now`, while its claim is current and live, else nothing. */
function heldSql(table: ClaimTable, held: HeldClaim): Sql {
  const byKey = table.key.map((column, place) => sql`${name(column)} = ${held.key[place] ?? null}::text`);
  return sql`WITH locked AS MATERIALIZED (
      SELECT ${keyColumns(table)}, ${name(table.stateColumn)} AS state, owner, epoch, expires_at
        FROM ${name(table.table)}
       WHERE ${joinSql(byKey, ' AND ')}
         FOR NO KEY UPDATE
    ), judged AS MATERIALIZED (
      SELECT locked.*, runplane.app_now() AS now FROM locked
    ), held AS MATERIALIZED (
      SELECT ${keyColumns(table)}, now
        FROM judged
       WHERE state = ${word(table, table.claimedState)}
         AND owner = ${held.owner}::text
         AND epoch = ${held.epoch}::int
         AND expires_at > now
    )`;
}

/** Prolongs a claim. An empty result: it is over or was taken away; a claim that has ended is not prolonged. */
export function renewClaimSql(table: ClaimTable, held: HeldClaim, renewal: { leaseMs: number; returning: Sql }): Sql {
  return sql`${heldSql(table, held)}
    UPDATE ${name(table.table)} AS t
       SET expires_at = held.now + ${milliseconds(renewal.leaseMs)},
           ready_at = held.now + ${milliseconds(renewal.leaseMs)}
      FROM held
     WHERE ${sameKey(table, 'held')}
    RETURNING ${renewal.returning}`;
}

/** Ends a claim with its result; `set` names the final state and whatever belongs to it. An empty result: the claim is over. */
export function settleClaimSql(table: ClaimTable, held: HeldClaim, settlement: { set: Sql; returning: Sql }): Sql {
  return sql`${heldSql(table, held)}
    UPDATE ${name(table.table)} AS t
       SET ${settlement.set},
           owner = NULL,
           expires_at = NULL
      FROM held
     WHERE ${sameKey(table, 'held')}
    RETURNING ${settlement.returning}`;
}

/** Gives a claim back, to be claimed again after a delay. The epoch grows: the old holder is fenced before the next claim. */
export function retryClaimSql(
  table: ClaimTable,
  held: HeldClaim,
  retry: { state: string; delayMs: number; lastError: string | null; returning: Sql; set?: Sql | undefined },
): Sql {
  return sql`${heldSql(table, held)}
    UPDATE ${name(table.table)} AS t
       SET ${name(table.stateColumn)} = ${word(table, retry.state)},
           ${retry.set === undefined ? emptySql : sql`${retry.set},`}
           owner = NULL,
           expires_at = NULL,
           epoch = t.epoch + 1,
           ready_at = held.now + ${milliseconds(retry.delayMs)},
           last_error = ${retry.lastError}::text
      FROM held
     WHERE ${sameKey(table, 'held')}
    RETURNING ${retry.returning}`;
}
