import { PAGE_BYTES_MAX, type JsonObject, type SessionEvent } from '@runplane/contracts';
import { column, rawSql, rows, sql, type Sql, type SqlExecutor, type Stream, type StreamProbe } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from './session.sql';

/** Who waits for a session's log. */
export const sessionStream = ({ tenantId, sessionId }: SessionKey): Stream => `session:${tenantId}/${sessionId}`;

export const LogRow = z.object({
  sequence: column.int8,
  type: column.text,
  time: column.time,
  turnId: column.text.nullable(),
  stepId: column.text.nullable(),
  dataText: column.text,
  eventId: column.text,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
});
export type LogRow = z.infer<typeof LogRow>;

export const LOG_COLUMNS = sql`sequence::text AS "sequence", type AS "type", runplane.wire_time(time) AS "time", turn_id AS "turnId", step_id AS "stepId",
  data::text AS "dataText", replace(event_id::text, '-', '') AS "eventId", run_id AS "runId", command_id AS "commandId"`;

/** As the wire shows it. */
export const toSessionEvent = ({ sequence, type, time, turnId, stepId, dataText, eventId, runId, commandId }: LogRow): SessionEvent => ({
  sequence,
  type,
  time,
  turnId,
  stepId,
  data: JSON.parse(dataText) as JsonObject,
  eventId,
  runId,
  commandId,
});

export const logOf = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

const AppendedRow = LogRow.extend({ tx: column.bigint.nullable(), position: column.bigint.nullable(), count: column.int.nullable() });
export type AppendedRow = z.infer<typeof AppendedRow>;

/** Events of one append, or `count` of them where it had no id, with their places in the feed. */
export function listAppended(on: SqlExecutor, key: SessionKey, first: number, count?: number): Promise<AppendedRow[]> {
  const firstText = String(first);
  return rows(
    on,
    AppendedRow,
    sql`SELECT ${LOG_COLUMNS}, tx::text AS "tx", position::text AS "position", append_count AS "count"
        FROM runplane.session_events WHERE ${logOf(key)} AND sequence >= ${firstText}::bigint
          AND sequence < ${firstText}::bigint + coalesce(${count ?? null}::int, (SELECT append_count FROM runplane.session_events
            WHERE ${logOf(key)} AND sequence = ${firstText}::bigint), 1)
        ORDER BY session_events.sequence`,
  );
}

/** Which events a page shows: from a sequence on, or the last ones before one. */
export type LogPlace = { readonly from: number } | { readonly before: number };

const PageFacts = z.object({
  lastSequence: column.int8,
  incarnation: column.text,
  copying: column.bool,
  deletedAt: column.time.nullable(),
});
const PageRow = z.union([LogRow.extend({ line: column.text.nullable(), ...PageFacts.shape }), PageFacts.extend({ sequence: z.null() })]);

export interface LogPage extends z.infer<typeof PageFacts> {
  /** Ascending. The line of an imported event is the one that it came with. */
  readonly rows: readonly (LogRow & { readonly line: string | null })[];
}

const PAGE_BYTES = rawSql(String(PAGE_BYTES_MAX));

/** A page of a log and where the log ends, from one snapshot; it ends with the event whose data passes the bytes of a page. Undefined: no session. */
export async function readLogPage(on: SqlExecutor, key: SessionKey, place: LogPlace, limit: number): Promise<LogPage | undefined> {
  const [within, order] =
    'from' in place
      ? [sql`sequence >= ${String(place.from)}::bigint`, sql`sequence`]
      : [sql`sequence < ${String(place.before)}::bigint`, sql`sequence DESC`];
  const page = sql`SELECT * FROM runplane.session_events WHERE ${logOf(key)} AND ${within} ORDER BY session_events.${order} LIMIT ${limit}::int`;
  const found = await rows(
    on,
    PageRow,
    sql`
    SELECT h."lastSequence", h."incarnation", h."copying", h."deletedAt", ${LOG_COLUMNS}, line AS "line" FROM (
      SELECT last_sequence::text AS "lastSequence", incarnation AS "incarnation", copying AS "copying", runplane.wire_time(deleted_at) AS "deletedAt"
      FROM runplane.session_heads WHERE ${logOf(key)}
    ) h LEFT JOIN (
      SELECT *, sum(octet_length(data::text)) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) - octet_length(data::text) AS bytes_before FROM (${page}) page
    ) e ON e.bytes_before < ${PAGE_BYTES}
    ORDER BY e.sequence`,
  );
  const [first] = found;
  if (first === undefined) return undefined;
  const { lastSequence, incarnation, copying, deletedAt } = first;
  return { lastSequence, incarnation, copying, deletedAt, rows: found.flatMap((row) => (row.sequence === null ? [] : [row])) };
}

/** What the hub asks while somebody waits for logs. */
export const sessionProbe: StreamProbe = {
  kind: 'session',
  async versionsOf(on, keys) {
    const places = keys.map((key) => key.indexOf('/')); // a tenant id has no slash
    const found = await rows(
      on,
      z.object({ key: column.text, version: column.text }),
      sql`SELECT w.tenant_id || '/' || w.session_id AS "key", h.last_sequence::text || CASE WHEN h.deleted_at IS NULL THEN '' ELSE ' deleted' END AS "version"
          FROM unnest(${keys.map((key, i) => key.slice(0, places[i]))}::text[], ${keys.map((key, i) => key.slice((places[i] ?? 0) + 1))}::text[]) AS w (tenant_id, session_id)
          JOIN runplane.session_heads h ON h.tenant_id = w.tenant_id AND h.session_id = w.session_id`,
    );
    return new Map(found.map((row) => [row.key, row.version]));
  },
};
