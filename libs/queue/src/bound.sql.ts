import { rawSql, type Sql } from '@runplane/database';

/** A LIMIT as part of a statement's text: a plan for any limit would read and sort the whole backlog. Callers pass few different ones. */
export function bound(rowsMax: number): Sql {
  if (!Number.isSafeInteger(rowsMax)) throw new Error(`${rowsMax} is not a number of rows for a statement`);
  return rawSql(String(rowsMax));
}
