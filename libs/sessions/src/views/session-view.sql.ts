import { CHANNEL_STATE_BYTES_MAX, CHANNEL_STATE_ROWS_MAX, LIST_SCAN_ROWS_MAX } from '@runplane/contracts';
import { column, emptySql, joinSql, maybeRow, rawSql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { Found, withinBytes } from '../page.sql';
import type { SessionKey } from '../session.sql';

// Reads of snapshots and of projections' values, over one session or a page of a tenant's.

const SnapshotRow = z.object({
  sessionId: column.text,
  snapshot: column.jsonObject.nullable(),
  windowId: column.text.nullable(),
  lastSequence: column.int8,
  type: column.text.nullable(),
  tx: column.bigint.nullable(),
  position: column.bigint.nullable(),
  storeId: column.text,
});
/** A session's snapshot as stored, with what the head and the newest event say beside it. */
export type SnapshotRow = z.infer<typeof SnapshotRow>;

const SNAPSHOT = sql`h.session_id AS "sessionId", h.snapshot::text AS "snapshot", h.window_id AS "windowId", h.last_sequence::text AS "lastSequence",
  e.type AS "type", e.tx::text AS "tx", e.position::text AS "position", (SELECT store_id FROM runplane.store) AS "storeId"`;
const NEWEST_EVENT = sql`LEFT JOIN runplane.session_events e ON e.tenant_id = h.tenant_id AND e.session_id = h.session_id AND e.sequence = h.last_sequence`;
const IS_OPEN = sql`h.deleted_at IS NULL AND NOT h.copying`;

export function findSnapshot(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<SnapshotRow | undefined> {
  return maybeRow(
    on,
    SnapshotRow,
    sql`SELECT ${SNAPSHOT} FROM runplane.session_heads h ${NEWEST_EVENT} WHERE h.tenant_id = ${tenantId}::text AND h.session_id = ${sessionId}::text`,
  );
}

const ListedSnapshot = SnapshotRow.extend(Found);

/** Sessions whose snapshot says that somebody has to look after them, by id. */
export function listRecoverySnapshots(
  on: SqlExecutor,
  { tenantId, after, limit }: { tenantId: string; after: string | undefined; limit: number },
): Promise<z.infer<typeof ListedSnapshot>[]> {
  const page = sql`SELECT h.* FROM runplane.session_heads h
      WHERE h.tenant_id = ${tenantId}::text AND h.needs_recovery AND ${IS_OPEN} AND h.last_sequence >= 0 ${behind(after)}
      ORDER BY h.session_id LIMIT ${limit}::int`;
  return rows(
    on,
    ListedSnapshot,
    sql`SELECT ${SNAPSHOT}, h.found AS "found"
      FROM (SELECT * FROM ${withinBytes(page, { size: sql`coalesce(octet_length(p.snapshot::text), 0)`, order: sql`p.session_id` })}) h ${NEWEST_EVENT}
      ORDER BY h.session_id`,
  );
}

const behind = (after: string | undefined): Sql => (after === undefined ? emptySql : sql`AND h.session_id > ${after}::text`);

const ViewRow = z.object({
  sessionId: column.text,
  key: column.text,
  version: column.int,
  sequence: column.int8,
  appliedSequence: column.int8,
  staleReason: column.text.nullable(),
  value: column.jsonObject,
});
export type ViewRow = z.infer<typeof ViewRow>;

const VIEW = sql`v.session_id AS "sessionId", v.key AS "key", v.version AS "version", v.sequence::text AS "sequence",
  v.applied_sequence::text AS "appliedSequence", v.stale_reason AS "staleReason", v.value::text AS "value"`;

/** All stored values of one session, by key: as many as there are projections. */
export function listViewsOfSession(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<ViewRow[]> {
  return rows(
    on,
    ViewRow,
    sql`SELECT ${VIEW} FROM runplane.session_views v WHERE v.tenant_id = ${tenantId}::text AND v.session_id = ${sessionId}::text ORDER BY v.key`,
  );
}

const ListedView = ViewRow.extend(Found);

/** The values of one projection over a tenant's sessions, by session. */
export function listViewsOfKey(
  on: SqlExecutor,
  { tenantId, key, after, limit }: { tenantId: string; key: string; after: string | undefined; limit: number },
): Promise<z.infer<typeof ListedView>[]> {
  const page = sql`SELECT v.* FROM runplane.session_views v JOIN runplane.session_heads h ON h.tenant_id = v.tenant_id AND h.session_id = v.session_id AND ${IS_OPEN}
      WHERE v.tenant_id = ${tenantId}::text AND v.key = ${key}::text ${after === undefined ? emptySql : sql`AND v.session_id > ${after}::text`}
      ORDER BY v.session_id LIMIT ${limit}::int`;
  return rows(
    on,
    ListedView,
    sql`SELECT ${VIEW}, v.found AS "found"
      FROM (SELECT * FROM ${withinBytes(page, { size: sql`octet_length(p.value::text)`, order: sql`p.session_id` })}) v ORDER BY v.session_id`,
  );
}

const ChannelRow = z.object({
  sessionId: column.text,
  sequence: column.int8,
  appliedSequence: column.int8,
  value: column.jsonObject,
  ...Found,
});
export type ChannelRow = z.infer<typeof ChannelRow>;

const ofHead = sql`tenant_id = h.tenant_id AND session_id = h.session_id`;
/** A part of the state, in the order of its key: whatever statistics say, no plan reads rows of other sessions. */
const BINDINGS = sql`runplane.channel_bindings WHERE ${ofHead} ORDER BY tenant_id, session_id, address`;
const INBOUNDS = sql`runplane.channel_inbounds WHERE ${ofHead} ORDER BY tenant_id, session_id, address, message_id`;
const ROUTES = sql`runplane.channel_routes WHERE ${ofHead} ORDER BY tenant_id, session_id, turn_id`;
const deliveries = (state: Sql): Sql =>
  sql`runplane.channel_deliveries WHERE ${ofHead} AND ${state} ORDER BY tenant_id, session_id, delivery_id`;
const QUEUED = deliveries(sql`state = 'queued'`);
const COMPLETED = deliveries(sql`state <> 'queued'`);
const DELIVERIES = deliveries(sql`true`);
const bySequence = sql`sequence`;
/** The newest rows of a part, of so many as one call looks at. */
const newestOf = (part: Sql, order: Sql): Sql =>
  sql`(SELECT * FROM (SELECT * FROM ${part} LIMIT ${LIST_SCAN_ROWS_MAX}::int) t ORDER BY ${order} DESC LIMIT ${CHANNEL_STATE_ROWS_MAX}::int) t`;
const newest = (what: Sql, part: Sql, order: Sql): Sql => sql`(SELECT ${what} FROM ${newestOf(part, order)})`;
/** The same of rows that hold `json`: up to the one that passes the bytes of a part. */
const newestJson = (what: Sql, json: Sql, part: Sql, order: Sql): Sql => {
  const bytes = sql`octet_length(${json}::text)`;
  return sql`coalesce((SELECT json_object_agg(${what}, ${json} ORDER BY t.${order}) FROM (
    SELECT t.*, sum(${bytes}) OVER (ORDER BY t.${order} DESC ROWS UNBOUNDED PRECEDING) - ${bytes} AS bytes_before FROM ${newestOf(part, order)}
  ) t WHERE t.bytes_before < ${CHANNEL_STATE_BYTES_MAX}::int), '{}')`;
};

/** The channel state of these sessions in the shape of one document, as the store before this one kept it. Sessions without one are left out. */
export function listChannelStates(
  on: SqlExecutor,
  { tenantId, sessionIds }: { tenantId: string; sessionIds: readonly string[] },
): Promise<ChannelRow[]> {
  const maxSequence = sql`max(t.sequence)`;
  const data = sql`t.data`;
  const page = sql`SELECT h.session_id, s.sequence, h.last_sequence, json_build_object(
        'bindings', ${newestJson(sql`t.address`, data, BINDINGS, bySequence)},
        'inbounds', ${newestJson(sql`t.address || ':' || to_json(t.message_id)`, data, INBOUNDS, bySequence)},
        'turn_routes', ${newestJson(sql`t.turn_id`, sql`t.source`, ROUTES, bySequence)},
        'pending_deliveries', ${newestJson(sql`t.delivery_id`, data, QUEUED, sql`queued_sequence`)},
        'completed_deliveries', coalesce(${newest(sql`json_agg(t.delivery_id ORDER BY t.completed_sequence)`, COMPLETED, sql`completed_sequence`)}, '[]')
      )::text AS value
      FROM runplane.session_heads h CROSS JOIN LATERAL (SELECT greatest(${newest(maxSequence, BINDINGS, bySequence)}, ${newest(maxSequence, INBOUNDS, bySequence)},
        ${newest(maxSequence, ROUTES, bySequence)}, ${newest(sql`max(greatest(t.queued_sequence, t.completed_sequence))`, DELIVERIES, sql`greatest(queued_sequence, completed_sequence)`)}) AS sequence) s
      WHERE h.tenant_id = ${tenantId}::text AND h.session_id = ANY(${sessionIds}::text[]) AND ${IS_OPEN} AND s.sequence IS NOT NULL`;
  return rows(
    on,
    ChannelRow,
    sql`SELECT p.session_id AS "sessionId", p.sequence::text AS "sequence", p.last_sequence::text AS "appliedSequence", p.value AS "value", p.found AS "found"
      FROM ${withinBytes(page, { size: sql`octet_length(p.value)`, order: sql`p.session_id` })} ORDER BY p.session_id`,
  );
}

const FoundRow = z.object({ sessionId: column.text });

/** The next sessions that have something of a channel, by hops from one to the next in the keys of its tables. */
export async function listChannelSessions(
  on: SqlExecutor,
  { tenantId, after, limit }: { tenantId: string; after: string | undefined; limit: number },
): Promise<string[]> {
  const next = (behind: Sql): Sql => {
    const tables = ['channel_bindings', 'channel_inbounds', 'channel_routes', 'channel_deliveries'];
    return sql`least(${joinSql(
      tables.map(
        (
          table,
        ) => sql`(SELECT t.session_id FROM ${rawSql(`runplane.${table}`)} t WHERE t.tenant_id = ${tenantId}::text AND t.session_id > ${behind}
          ORDER BY t.tenant_id, t.session_id LIMIT 1)`,
      ),
    )})`;
  };
  const found = await rows(
    on,
    FoundRow,
    sql`WITH RECURSIVE hop (session_id, n) AS (
        SELECT ${next(sql`${after ?? ''}::text`)}, 1
        UNION ALL SELECT ${next(sql`hop.session_id`)}, n + 1 FROM hop WHERE session_id IS NOT NULL AND n < ${limit}::int
      )
      SELECT session_id AS "sessionId" FROM hop WHERE session_id IS NOT NULL ORDER BY session_id`,
  );
  return found.map(({ sessionId }) => sessionId);
}
