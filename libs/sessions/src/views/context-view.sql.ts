import { CONTEXT_ROLES, LIST_SCAN_ROWS_MAX, type ContextRole } from '@runplane/contracts';
import { column, emptySql, joinSql, maybeRow, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

const ofSession = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

const WindowRow = z.object({
  windowId: column.text,
  previousWindowId: column.text.nullable(),
  startedSequence: column.int8,
  eventSequence: column.int8,
  trigger: column.text,
});
export type WindowRow = z.infer<typeof WindowRow>;

/** Windows, the current one first. */
export function listWindowRows(
  on: SqlExecutor,
  key: SessionKey,
  { after, limit }: { after: { startedSequence: number; eventSequence: number } | undefined; limit: number },
): Promise<WindowRow[]> {
  const behind =
    after === undefined
      ? emptySql
      : sql`AND (started_sequence, event_sequence) < (${String(after.startedSequence)}::bigint, ${String(after.eventSequence)}::bigint)`;
  return rows(
    on,
    WindowRow,
    sql`SELECT window_id AS "windowId", previous_window_id AS "previousWindowId", started_sequence::text AS "startedSequence",
        event_sequence::text AS "eventSequence", trigger AS "trigger"
      FROM runplane.context_windows WHERE ${ofSession(key)} ${behind} ORDER BY started_sequence DESC, event_sequence DESC LIMIT ${limit}::int`,
  );
}

const NoteRow = z.object({ path: column.text, content: column.text, updatedSequence: column.int8 });

export function findNote(on: SqlExecutor, key: SessionKey, path: string): Promise<z.infer<typeof NoteRow> | undefined> {
  return maybeRow(
    on,
    NoteRow,
    sql`SELECT path AS "path", content AS "content", updated_sequence::text AS "updatedSequence" FROM runplane.context_notes
      WHERE ${ofSession(key)} AND path = ${path}::text`,
  );
}

const NoteSizeRow = z.object({ path: column.text, bytes: column.int, updatedSequence: column.int8 });

export function listNoteRows(
  on: SqlExecutor,
  key: SessionKey,
  { after, limit }: { after: string | undefined; limit: number },
): Promise<z.infer<typeof NoteSizeRow>[]> {
  return rows(
    on,
    NoteSizeRow,
    sql`SELECT path AS "path", octet_length(content) AS "bytes", updated_sequence::text AS "updatedSequence" FROM runplane.context_notes
      WHERE ${ofSession(key)} ${after === undefined ? emptySql : sql`AND path > ${after}::text`} ORDER BY path LIMIT ${limit}::int`,
  );
}

const ItemRow = z.object({
  sequence: column.int8,
  windowId: column.text,
  role: column.state(CONTEXT_ROLES),
  toolName: column.text.nullable(),
  shown: column.text,
});
export type ItemRow = z.infer<typeof ItemRow>;
const Scanned = { scannedTo: column.int8.nullable() };
const ScannedItem = z.union([ItemRow.extend(Scanned), z.object({ sequence: z.null(), ...Scanned })]);

export interface ItemScan {
  /** As they are stored; undefined: of all windows. */
  readonly windowIds: readonly string[] | undefined;
  readonly role: ContextRole | undefined;
  readonly order: 'oldest-first' | 'newest-first';
  readonly after: number | undefined;
  readonly limit: number;
  /** Of the contents that one call looks at; the first item is looked at in any case. */
  readonly bytesMax: number;
  /** On the alias h; undefined: every item. */
  readonly matches: Sql | undefined;
  /** What is shown of the content; on the alias p. */
  readonly shown: Sql;
}

/**
 * A page of history. Looks at so many items and bytes and no more, in the order of the page, and says where it stopped with the page not full. It
 * stops where the page is full: the scan comes in that order, and is not kept.
 */
export async function listItemRows(
  on: SqlExecutor,
  key: SessionKey,
  { windowIds, role, order, after, limit, bytesMax, matches, shown }: ItemScan,
): Promise<{ items: ItemRow[]; scannedTo: number | undefined }> {
  const [direction, behind, last] = order === 'oldest-first' ? [sql`ASC`, sql`>`, sql`max`] : [sql`DESC`, sql`<`, sql`min`];
  const rowsMax = role === undefined && matches === undefined ? limit : LIST_SCAN_ROWS_MAX;
  const source = (window: Sql): Sql => sql`(
      SELECT sequence, window_id, role, tool_name, content FROM runplane.context_history
      WHERE ${ofSession(key)} ${window} ${after === undefined ? emptySql : sql`AND sequence ${behind} ${String(after)}::bigint`}
      ORDER BY sequence ${direction} LIMIT ${rowsMax}::int)`;
  const [first, ...others] = windowIds?.map((windowId) => source(sql`AND window_id = ${windowId}::text`)) ?? [];
  // Of several names each in the order of its index: all at once would be read whole and sorted.
  const stored =
    first === undefined || others.length === 0
      ? (first ?? source(emptySql))
      : sql`(${joinSql([first, ...others], ' UNION ALL ')} ORDER BY sequence ${direction} LIMIT ${rowsMax}::int)`;
  const scan = sql`(
    SELECT h.*, coalesce(sum(octet_length(h.content)) OVER (ORDER BY h.sequence ${direction} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < ${bytesMax}::int AS near
    FROM ${stored} h)`;
  const found = await rows(
    on,
    ScannedItem,
    sql`WITH page AS MATERIALIZED (
        SELECT h.* FROM ${scan} h
        WHERE h.near ${role === undefined ? emptySql : sql`AND h.role = ${role}::text`} ${matches === undefined ? emptySql : sql`AND ${matches}`}
        ORDER BY h.sequence ${direction} LIMIT ${limit}::int
      )
      SELECT p.sequence::text AS "sequence", p.window_id AS "windowId", p.role AS "role", p.tool_name AS "toolName", ${shown} AS "shown",
        e.scanned_to::text AS "scannedTo"
      FROM (SELECT count(*) AS n FROM page) c CROSS JOIN LATERAL (
        SELECT CASE WHEN count(*) = ${rowsMax}::int OR NOT bool_and(h.near) THEN ${last}(h.sequence) FILTER (WHERE h.near) END AS scanned_to
        FROM ${scan} h WHERE c.n < ${limit}::int
      ) e LEFT JOIN page p ON true ORDER BY p.sequence ${direction}`,
  );
  const items = found.flatMap((row) => {
    if (row.sequence === null) return [];
    const { scannedTo: _, ...item } = row;
    return [item];
  });
  return { items: items, scannedTo: items.length < limit ? (found[0]?.scannedTo ?? undefined) : undefined };
}
