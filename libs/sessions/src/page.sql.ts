import { PAGE_BYTES_MAX } from '@runplane/contracts';
import { column, sql, type Sql } from '@runplane/database';

/** On each row of a page: how many there would be, however large. */
export const Found = { found: column.int };

/**
 * The rows of a page up to the one whose `size`, in bytes, passes what a page may have, as a relation with the alias p; its columns, and `found`.
 * Size and order are of p too, and the page has a limit of its own.
 */
export const withinBytes = (page: Sql, { size, order }: { size: Sql; order: Sql }): Sql => sql`(
  SELECT p.* FROM (
    SELECT p.*, count(*) OVER ()::int AS found, sum(${size}) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) - ${size} AS bytes_before FROM (${page}) p
  ) p WHERE p.bytes_before < ${PAGE_BYTES_MAX}::int
) p`;

/** What a page shows of rows that were read with one more than it may show, and after which it goes on; undefined: nothing is left. */
export function cutPage<Row extends object>(read: readonly Row[], limit: number): { shown: Omit<Row, 'found'>[]; last: Row | undefined } {
  const rows: readonly (Row & { readonly found?: number })[] = read;
  const shown = rows.slice(0, limit);
  const all = rows[0]?.found ?? rows.length;
  return { shown: shown.map(({ found: _, ...row }) => row), last: all > shown.length ? shown.at(-1) : undefined };
}
