import { createHash } from 'node:crypto';
import { Prisma } from './generated/client';

/** A statement: text with parameters, composable. Parameters are text, int, bool and arrays of them, each with a cast in the text. */
export type Sql = Prisma.Sql;
export const sql = Prisma.sql;
export const joinSql = Prisma.join;
export const emptySql = Prisma.empty;
/** For constants of the code (table names, state lists) only, never for a value that came from outside. */
export const rawSql = Prisma.raw;

/**
 * A text[] of texts without line breaks that are not empty, and of nulls; unnest it beside a list that has none, since a null in last place may be
 * left out. It travels as lines of one text: what an array parameter costs is that both sides walk over its every character for the quotes (4 % of
 * an append of twenty events on the server, a tenth of its statement on the client).
 */
export function textLines(values: readonly (string | null)[]): Sql {
  for (const value of values) {
    if (value === '' || value?.includes('\n') === true) throw new ParameterError('a line of a statement is empty, or has a line break');
  }
  return sql`string_to_array(${values.join('\n')}::text, chr(10), '')`;
}

export type SqlValue = string | number | boolean | null;
export type SqlRow = Record<string, SqlValue>;

/** Runs one statement. Every executor gives the same JavaScript values for the same statement, and the same errors. */
export interface SqlExecutor {
  query(statement: Sql): Promise<SqlRow[]>;
}

const INT4_MAX = 2 ** 31 - 1;
const INT4_MIN = -(2 ** 31);

/** A statement that was not sent: a parameter of it is of no kind that statements take. A bug of the caller. */
export class ParameterError extends TypeError {}

/** The parameters of a statement, checked: what drivers would type by guess (floats, dates, objects, undefined) is a bug of the caller. */
export function parametersOf(statement: Sql): unknown[] {
  for (const value of statement.values) {
    if (Array.isArray(value)) value.forEach(checkParameter);
    else checkParameter(value);
  }
  return statement.values;
}

function checkParameter(value: unknown): void {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return;
  if (typeof value === 'number' && Number.isInteger(value) && value >= INT4_MIN && value <= INT4_MAX) return;
  const shown = typeof value === 'number' ? String(value) : value === undefined ? 'undefined' : typeof value;
  throw new ParameterError(`a parameter is ${shown}: pass text, int4, bool, null or an array of them, bigint and JSON as text with a cast`);
}

/** Enough for every constant text of this code base; texts built at run time beyond it stay unnamed and cannot fill a server's memory. */
const NAMED_STATEMENTS_MAX = 1_000;
const names = new Map<string, string>();

/** The name under which a text is prepared on each connection; undefined once too many texts have names. */
export function statementName(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined) return known;
  if (names.size >= NAMED_STATEMENTS_MAX) return undefined;
  const name = `rp_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
  names.set(text, name);
  return name;
}
