import type pg from 'pg';
import { databaseError, type LossMeaning } from './database-error';
import { parametersOf, statementName, type Sql, type SqlExecutor, type SqlRow, type SqlValue } from './sql';
import { isConnectionLoss } from './sql-state';

// One text, several executors: each gives text as string, int4 as number and bool as boolean, and refuses every other column.

const BOOL = 16;
const INT4 = 23;
const TEXT = 25;

/** Reads the three column types by itself, so that parsers set on `pg.types` elsewhere in the process change nothing here. */
const columnTypes: pg.CustomTypesConfig = {
  getTypeParser: (oid: number) => (oid === INT4 ? Number : oid === BOOL ? (value: string) => value === 't' : (value: string) => value),
};

/** A connection of pg, of this process or of a caller; only `query` is needed. */
export interface PgClient {
  query(config: pg.QueryConfig): Promise<pg.QueryResult>;
}

/** Runs a statement on a pg connection; errors come as pg throws them. */
export async function queryPg(client: PgClient, statement: Sql, prepared: boolean): Promise<SqlRow[]> {
  const { text } = statement;
  const name = prepared ? statementName(text) : undefined;
  const result = await client.query({ ...(name === undefined ? {} : { name }), text, values: parametersOf(statement), types: columnTypes });
  for (const field of result.fields) {
    if (field.dataTypeID !== TEXT && field.dataTypeID !== INT4 && field.dataTypeID !== BOOL) {
      throw new TypeError(`column "${field.name}" is neither text, int4 nor bool (type ${field.dataTypeID}): cast it in the statement`);
    }
  }
  return result.rows as SqlRow[];
}

/** Any Prisma transaction client, also of another generated client or version. */
export interface PrismaTransaction {
  $queryRawUnsafe(text: string, ...values: unknown[]): Promise<unknown>;
}

/** Runs a statement through a Prisma client; errors come as Prisma throws them. */
export async function queryPrisma(client: PrismaTransaction, statement: Sql): Promise<SqlRow[]> {
  // The text and its parameters stay apart; $queryRaw would demand an Sql object of the very class of that client's own runtime.
  const found = (await client.$queryRawUnsafe(statement.text, ...parametersOf(statement))) as Record<string, unknown>[];
  for (const row of found)
    for (const name in row)
      if (!isSqlValue(row[name])) throw new TypeError(`column "${name}" is neither text, int4 nor bool: cast it in the statement`);
  return found as SqlRow[];
}

const isSqlValue = (value: unknown): value is SqlValue =>
  value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';

/** Words that a statement without effect does not have; a false alarm costs a caller one repeated call, a miss would hide a write. */
const WRITES = /\b(insert|update|delete|merge|call|nextval|setval|truncate|lock)\b/i;

/** Each statement on a connection of the pool, in a transaction of its own. */
export function poolExecutor(pool: pg.Pool, prepared: boolean): SqlExecutor {
  return {
    async query(statement) {
      const client = await pool.connect().catch((error: unknown) => {
        throw databaseError(error, 'nothing-written');
      });
      let lost: Error | undefined;
      try {
        return await queryPg(client, statement, prepared);
      } catch (error) {
        if (isConnectionLoss(error)) lost = error as Error;
        const loss: LossMeaning = WRITES.test(statement.text) ? 'outcome-unknown' : 'nothing-written';
        throw databaseError(error, loss);
      } finally {
        client.release(lost); // pool.query would throw the connection away after every error, a lost lock race too
      }
    },
  };
}
