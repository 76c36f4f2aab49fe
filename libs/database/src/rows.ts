import type { JsonObject, JsonValue } from '@runplane/contracts';
import { z } from 'zod';
import { sql, type Sql, type SqlExecutor, type SqlRow } from './sql';

function decimal(text: string, ctx: z.RefinementCtx<string>): bigint {
  if (/^-?\d{1,20}$/.test(text)) return BigInt(text);
  ctx.addIssue({ code: 'custom', message: 'expected a decimal number as text' });
  return z.NEVER;
}

function safeInteger(text: string, ctx: z.RefinementCtx<string>): number {
  const value = Number(text);
  if (/^-?\d{1,20}$/.test(text) && Number.isSafeInteger(value)) return value;
  ctx.addIssue({ code: 'custom', message: 'expected an integer within ±(2^53 - 1) as text' });
  return z.NEVER;
}

function parsedJson(text: string, ctx: z.RefinementCtx<string>): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    ctx.addIssue({ code: 'custom', message: 'expected JSON text' });
    return z.NEVER;
  }
}

function parsedObject(text: string, ctx: z.RefinementCtx<string>): JsonObject {
  const value = parsedJson(text, ctx);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  ctx.addIssue({ code: 'custom', message: 'expected a JSON object' });
  return z.NEVER;
}

/** The one codec of columns: what statements return (text, int4, bool) and what code works with. Nullable columns: `column.text.nullable()`. */
export const column = {
  text: z.string(),
  int: z.int(),
  bool: z.boolean(),
  /** `bigint::text`, as a number; beyond 2^53 - 1 it is an error, never a rounded value. */
  int8: z.string().transform(safeInteger),
  /** `bigint::text`, as a bigint. */
  bigint: z.string().transform(decimal),
  /** `json::text`. */
  json: z.string().transform(parsedJson),
  jsonObject: z.string().transform(parsedObject),
  /** `runplane.wire_time(t)`: RFC 3339, UTC, milliseconds. */
  time: z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  /** A column of one of the listed words. */
  state: <const States extends readonly [string, ...string[]]>(states: States) => z.enum(states),
};

/** The rows of a statement, each checked against its shape. A row of another shape is a bug, not a refusal. */
export async function rows<T>(on: SqlExecutor, shape: z.ZodType<T>, statement: Sql): Promise<T[]> {
  const found = await on.query(statement);
  return found.map((row) => parsed(shape, row));
}

function parsed<T>(shape: z.ZodType<T>, row: SqlRow): T {
  const result = shape.safeParse(row);
  if (result.success) return result.data;
  throw new Error(`a row does not have the shape that its statement promises:\n${z.prettifyError(result.error)}`, { cause: result.error });
}

/**
 * The rows of `list` that lie under something, and whether that is there: undefined where `parent` (a SELECT of one row or none) finds it not. From
 * one snapshot, so that what is removed meanwhile never reads as an empty list. `order`: by columns of `list`, which stand under `l`.
 */
export async function rowsUnder<T>(
  on: SqlExecutor,
  shape: z.ZodType<T>,
  { parent, list, order }: { parent: Sql; list: Sql; order: Sql },
): Promise<T[] | undefined> {
  const found = await on.query(sql`
    SELECT l.* FROM (SELECT true FROM (${parent}) p) p LEFT JOIN (SELECT true AS "isRow", x.* FROM (${list}) x) l ON true ORDER BY ${order}`);
  if (found.length === 0) return undefined;
  return found.filter((row) => row['isRow'] === true).map((row) => parsed(shape, row));
}

/** The row of a statement that finds one or none. */
export async function maybeRow<T>(on: SqlExecutor, shape: z.ZodType<T>, statement: Sql): Promise<T | undefined> {
  const found = await rows(on, shape, statement);
  if (found.length > 1) throw new Error(`a statement for at most one row returned ${found.length}`);
  return found[0];
}

/** The row of a statement that always has exactly one. */
export async function oneRow<T>(on: SqlExecutor, shape: z.ZodType<T>, statement: Sql): Promise<T> {
  const row = await maybeRow(on, shape, statement);
  if (row === undefined) throw new Error('a statement for exactly one row returned none');
  return row;
}
