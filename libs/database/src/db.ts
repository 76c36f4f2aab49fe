import { assertProjections, type SessionProjection } from '@runplane/contracts';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import type { CoalescerStats } from './coalescer';
import { connectionConfig, type StartupSettings } from './connection';
import { poolExecutor } from './executors';
import { PrismaClient } from './generated/client';
import { createHub, type ChangeHub, type HubSettings, type Stream } from './hub';
import { column, oneRow } from './rows';
import { sql, statementName, type SqlExecutor } from './sql';
import { checkStore } from './store';
import { z } from 'zod';

/** The PostgreSQL schema that holds everything of Runplane. */
const SCHEMA = 'runplane';

export interface DbOptions {
  url: string;
  /** A URL without a pooler in between, for LISTEN; the same as `url` where there is none. */
  directUrl?: string | undefined;
  /** Connections of the pool, at least 2: one waits for a lock while another works. The lane and the listener come on top. */
  poolMax?: number | undefined;
  applicationName?: string | undefined;
  /** False for a pooler in transaction mode that does not know prepared statements. */
  preparedStatements?: boolean | undefined;
  /**
   * False for an old pooler that refuses start-up options (PgBouncer before 1.20). The role must have the settings then:
   * `ALTER ROLE app SET timezone = 'UTC'`, and likewise lock_timeout, statement_timeout, idle_in_transaction_session_timeout.
   */
  startupSettings?: boolean | undefined;
  lockTimeoutMs?: number | undefined;
  statementTimeoutMs?: number | undefined;
  /** How long to wait for a new connection, or for one of the pool to become free. */
  connectTimeoutMs?: number | undefined;
  /** False: each call by a statement of its own, also when many arrive together (docs/adr/0019). */
  coalesce?: boolean | undefined;
  /** Views of session logs that this team keeps beside the built-in ones; every append through this handle feeds them. */
  projections?: readonly SessionProjection[] | undefined;
  hub?: Partial<HubSettings> | undefined;
  /** Told of errors that no call can answer for: a connection lost while idle, a failed hint. Never throw from it. */
  onError?: ((error: Error, where: string) => void) | undefined;
}

export type ResolvedDbOptions = Readonly<Required<{ [Name in keyof Omit<DbOptions, 'hub'>]: NonNullable<DbOptions[Name]> }>>;

/** One process's access to the store. */
export interface Db {
  /** For reads of our own process; operations use statements only. */
  readonly prisma: PrismaClient;
  readonly pool: pg.Pool;
  /** Each statement alone, on the pool, prepared under a name. */
  readonly sql: SqlExecutor;
  /** One connection of its own: heartbeats, renewals and settles get through while the pool is exhausted. */
  readonly lane: SqlExecutor;
  readonly options: ResolvedDbOptions;
  readonly hub: ChangeHub;
  /** Where calls that arrive together share a statement, by kind; each is made at its first call. See coalescerOf. */
  readonly coalescers: Map<string, { readonly stats: CoalescerStats; close(): Promise<void> }>;
  /** Tells whoever waits for the streams; for changes that are committed already. */
  changed(streams: readonly Stream[]): void;
  /** Carries out the calls that wait in a coalescer, sends the last hints, ends the connections. */
  close(): Promise<void>;
}

const DEFAULTS = {
  poolMax: 10,
  applicationName: 'runplane',
  preparedStatements: true,
  startupSettings: true,
  lockTimeoutMs: 4_000, // below the transaction timeout (10 s): the waiter gets a clear answer before Prisma gives up
  statementTimeoutMs: 15_000,
  connectTimeoutMs: 5_000,
  coalesce: true,
  projections: [],
  onError: (error: Error, where: string) => {
    console.error(`runplane database, ${where}: ${error.message}`);
  },
};

/** A client gives up a statement on a connection that has gone silent this long after the server should have cancelled it. */
const SILENCE_MS = 5_000;
/** Ends the session of a process that stopped in the middle of a transaction. Far above every transaction timeout. */
const IDLE_IN_TRANSACTION_MS = 60_000;

/**
 * Opens the store: a pool shared by Prisma and plain statements, a lane, a hub that is not started yet. Creates and migrates nothing.
 * Fails at once when the session's time zone is not UTC (Prisma would shift every time) or its isolation is not READ COMMITTED.
 */
export async function openDb(given: DbOptions): Promise<Db> {
  const { hub: hubSettings, ...rest } = given;
  const options: ResolvedDbOptions = { ...DEFAULTS, directUrl: given.url, ...definedOf(rest) };
  assertProjections(options.projections);
  if (!Number.isInteger(options.poolMax) || options.poolMax < 2)
    throw new Error(`poolMax is ${options.poolMax}: at least 2 connections are needed`);

  const pool = openPool(options, options.applicationName, options.poolMax);
  const lanePool = openPool(options, `${options.applicationName}-lane`, 1);
  const prisma = new PrismaClient({
    adapter: new PrismaPg(pool, {
      schema: SCHEMA,
      ...(options.preparedStatements ? { statementNameGenerator: ({ sql: text }) => statementName(text) ?? '' } : {}),
    }),
  });
  const onPool = poolExecutor(pool, options.preparedStatements);
  const hub = createHub({
    sql: onPool,
    listener: connectionConfig(options.directUrl, `${options.applicationName}-listener`, options.connectTimeoutMs, {}),
    onError: options.onError,
    onReconnect: () => checkStore(db),
    settings: hubSettings,
  });
  let closing: Promise<void> | undefined;
  const db: Db = {
    prisma,
    pool,
    sql: onPool,
    lane: poolExecutor(lanePool, options.preparedStatements),
    options,
    hub,
    coalescers: new Map(),
    changed: (streams) => {
      hub.changed(streams);
    },
    close: () => (closing ??= closeAll(db, [lanePool, pool])),
  };
  try {
    await assertSession(db);
  } catch (error) {
    await db.close();
    throw error;
  }
  return db;
}

function openPool(options: ResolvedDbOptions, applicationName: string, max: number): pg.Pool {
  const settings: StartupSettings = options.startupSettings
    ? {
        TimeZone: 'UTC',
        default_transaction_isolation: 'read committed',
        lock_timeout: String(options.lockTimeoutMs),
        statement_timeout: String(options.statementTimeoutMs),
        idle_in_transaction_session_timeout: String(IDLE_IN_TRANSACTION_MS),
      }
    : {};
  const pool = new pg.Pool({
    ...connectionConfig(options.url, applicationName, options.connectTimeoutMs, settings),
    query_timeout: options.statementTimeoutMs + SILENCE_MS,
    max,
  });
  // Without a listener for each, a connection that the server closes ends the process: idle ones report to the pool, used ones to themselves.
  pool.on('error', (error) => {
    options.onError(error, 'idle connection');
  });
  pool.on('connect', (client) => {
    client.on('error', () => undefined); // the statement in flight fails with the same error
  });
  return pool;
}

const SessionRow = z.object({ timeZone: column.text, isolation: column.text });

async function assertSession(db: Db): Promise<void> {
  const session = sql`SELECT current_setting('TimeZone') AS "timeZone", current_setting('default_transaction_isolation') AS isolation`;
  const { timeZone, isolation } = await oneRow(db.sql, SessionRow, session);
  const how =
    'the settings of the connection did not reach the server; set it for the role (ALTER ROLE … SET …) or use a URL without a pooler';
  if (!/^(Etc\/)?UTC$/i.test(timeZone)) throw new Error(`the session's TimeZone is ${timeZone}, not UTC: ${how}`);
  if (isolation !== 'read committed')
    throw new Error(`the session's default_transaction_isolation is "${isolation}", not "read committed": ${how}`);
}

async function closeAll({ hub, prisma, coalescers }: Db, pools: readonly pg.Pool[]): Promise<void> {
  await Promise.all([...coalescers.values()].map((coalescer) => coalescer.close()));
  await hub.close();
  await prisma.$disconnect();
  await Promise.all(pools.map((pool) => pool.end()));
}

function definedOf<T extends object>(options: T): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as {
    [Name in keyof T]: Exclude<T[Name], undefined>;
  };
}
