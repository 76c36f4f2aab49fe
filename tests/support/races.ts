import { isDomainError } from '@runplane/contracts';
import { inTransaction, openDb, type Db, type Tx } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked, withClockAt, type RawQueries } from '@runplane/database/testing';
import { makeTenants } from '@runplane/runs/testing';
import { setTimeout as delay } from 'node:timers/promises';

// Races with a fixed schedule: one side has done its work and waits before its commit, PostgreSQL says that the other side has come to
// wait for it, then the first goes on. No test sleeps for a time.

export interface RaceDatabase {
  readonly url: string;
  readonly db: Db;
}

/**
 * A database of its own on which no deadlock may have happened by the end of the file: inTransaction would hide one by its repeat.
 * `coalesce: false`: each call waits by itself, as if the other came from another process. `checkInvariants: false`: of events without their logs.
 */
export function useRaces({ coalesce = true, checkInvariants = true } = {}): RaceDatabase {
  let own: Db | undefined;
  // Defined before useDatabase's own hooks: those drop the database.
  afterAll(async () => {
    await own?.close(); // a backend reports its deadlocks at its end at the latest
    expect(await countDeadlocks(t.db.pool)).toBe(0);
  });
  const t = useDatabase({ checkInvariants });
  beforeAll(async () => {
    // Waits as long as its transactions may: the other side's commit may come late on a machine that stands still for seconds.
    own = await openDb({ url: t.url, applicationName: 'race', lockTimeoutMs: 9_000, connectTimeoutMs: 15_000, coalesce });
    await makeTenants(own, 'other');
  });
  return {
    url: t.url,
    get db() {
      if (own === undefined) throw new Error('the database is there inside tests and hooks only');
      return own;
    },
  };
}

/** How many deadlocks PostgreSQL has broken up in this database, once the connections of `race` are gone. */
async function countDeadlocks(on: RawQueries): Promise<number> {
  for (;;) {
    const { rows } = await on.query(
      `SELECT deadlocks::int AS count, (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'race%')::int AS open
         FROM pg_stat_database WHERE datname = current_database()`,
    );
    const { count, open } = rows[0] as { count: number; open: number };
    if (open === 0) return count;
    await delay(20);
  }
}

/** What became of a call: its value, or the code of its refusal. Anything but a refusal is a bug and is thrown. */
export type Ending<T> = { readonly value: T } | { readonly code: string; readonly data: unknown };

export function ending<T>(call: Promise<T>): Promise<Ending<T>> {
  const ended = call.then(
    (value) => ({ value }),
    (error: unknown) => {
      if (isDomainError(error)) return { code: error.code, data: error.data };
      throw error;
    },
  );
  ended.catch(() => undefined); // whoever awaits it sees it
  return ended;
}

/** A transaction that has done its work and waits before its end. */
export interface Held<T> {
  readonly value: T;
  commit(): Promise<T>;
  rollBack(): Promise<void>;
}

class Abandoned extends Error {}

function deferred<T>(): { promise: Promise<T>; settle(value: T): void } {
  let settle: (value: T) => void = () => undefined;
  const promise = new Promise<T>((resolve) => {
    settle = resolve;
  });
  return { promise, settle };
}

export async function hold<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<Held<T>> {
  const end = deferred<'commit' | 'roll-back'>();
  const worked = deferred<T>();
  const whole = inTransaction(
    db,
    async (tx) => {
      const value = await work(tx);
      worked.settle(value);
      if ((await end.promise) === 'roll-back') throw new Abandoned();
      return value;
    },
    { attempts: 1, timeoutMs: 30_000 },
  );
  const value = await Promise.race([worked.promise, whole]);
  return {
    value,
    commit() {
      end.settle('commit');
      return whole;
    },
    async rollBack() {
      end.settle('roll-back');
      await whole.catch((error: unknown) => {
        if (!(error instanceof Abandoned)) throw error;
      });
    },
  };
}

/** The first has done its work, the second comes to wait for it, then the first commits. Returns what became of both. */
export async function meet<A, B>(db: Db, first: (tx: Tx) => Promise<A>, second: () => Promise<B>): Promise<[A, Ending<B>]> {
  return meetAndEnd(db, first, second, (held) => held.commit());
}

/** The same, but the first rolls back: the second goes on as if it had been alone. */
export async function meetAborted<B>(db: Db, first: (tx: Tx) => Promise<unknown>, second: () => Promise<B>): Promise<Ending<B>> {
  const [, other] = await meetAndEnd(db, first, second, (held) => held.rollBack());
  return other;
}

async function meetAndEnd<A, B, E>(
  db: Db,
  first: (tx: Tx) => Promise<A>,
  second: () => Promise<B>,
  end: (held: Held<A>) => Promise<E>,
): Promise<[E, Ending<B>]> {
  const held = await hold(db, first);
  const other = ending(second());
  try {
    await waitUntilBlocked(db, 1);
  } catch (error) {
    await held.rollBack();
    throw error;
  }
  const ended = await end(held);
  return [ended, await other];
}

/**
 * The first has done its work; the second has come to its end beside it, or waits for it; then the first commits. Undefined where the first
 * is refused: then there is nothing to meet.
 */
export async function meetAnyhow(
  db: Db,
  first: (tx: Tx) => Promise<unknown>,
  second: () => Promise<unknown>,
): Promise<{ readonly waited: boolean; readonly other: Ending<unknown> } | undefined> {
  const began = await ending(hold(db, first));
  if (!('value' in began)) return undefined;
  const held = began.value;
  let hasEnded = false;
  const other = ending(second());
  void other.then(
    () => (hasEnded = true),
    () => (hasEnded = true),
  );
  const waited = await isBlockedUnless(db, () => hasEnded);
  await held.commit();
  return { waited, other: await other };
}

async function isBlockedUnless(db: Db, hasEnded: () => boolean): Promise<boolean> {
  while (!hasEnded()) {
    const { rows } = await db.pool.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0`,
    );
    if (rows.length > 0) return true;
    await delay(2);
  }
  return false;
}

/** A row lock of a connection beside, at which an operation can be stopped in the middle of its transaction. */
export async function lockRow(
  url: string,
  table: 'sessions' | 'commands' | 'runs' | 'run_leases' | 'dispatch_intents' | 'queue_tasks' | 'queue_lanes' | 'submission_heads',
  where: string,
): Promise<{ release(): Promise<void>; query(text: string): Promise<unknown> }> {
  const client = await openClient(url);
  await client.query('BEGIN');
  await client.query(`SELECT FROM runplane.${table} WHERE ${where} FOR UPDATE`);
  return {
    query: (text) => client.query(text),
    async release() {
      await client.query('COMMIT');
      await client.end();
    },
  };
}

/** The first stops, in the middle of its work, at a row that a connection beside has locked; the second comes to wait for the first; then both go on. */
export async function meetStopped<A, B>(
  { url, db }: RaceDatabase,
  table: Parameters<typeof lockRow>[1],
  where: string,
  first: () => Promise<A>,
  second: () => Promise<B>,
): Promise<[A, Ending<B>]> {
  const stop = await lockRow(url, table, where);
  const one = first();
  await waitUntilBlocked(db, 1);
  const other = ending(second());
  await waitUntilBlocked(db, 2);
  await stop.release();
  return [await one, await other];
}

/** A store handle whose database clock is ahead. The caller closes it. */
export async function openDbAhead(url: string, aheadMs: number): Promise<Db> {
  return openDb({ url: withClockAt(url, new Date(Date.now() + aheadMs)), applicationName: 'race-ahead' });
}
