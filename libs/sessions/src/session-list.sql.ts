import { SESSION_STATES, STORAGE_KINDS, type SessionListState, type SessionSummary } from '@runplane/contracts';
import { column, joinSql, maybeRow, oneRow, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { CHANGE_HEAD, changePage, type ChangePage, type ChangesWanted } from '@runplane/outbox';
import { z } from 'zod';
import type { SessionKey } from './session.sql';

// Lists of sessions. The tenant is spelled COLLATE "C", as their indexes have it.

const SummaryRow = z.object({
  sessionId: column.text,
  projectId: column.text.nullable(),
  backendProfile: column.text.nullable(),
  conversationId: column.text.nullable(),
  threadId: column.text.nullable(),
  title: column.text.nullable(),
  summary: column.jsonObject,
  executionState: column.state(SESSION_STATES),
  activeRunId: column.text.nullable(),
  activeCommandId: column.text.nullable(),
  lastRunId: column.text.nullable(),
  lastCommandId: column.text.nullable(),
  terminalStatus: column.text.nullable(),
  failureKind: column.text.nullable(),
  version: column.int8,
  createdAt: column.time,
  updatedAt: column.time,
  lastActivityAt: column.time,
  expiresAt: column.time.nullable(),
  storageKind: column.state(STORAGE_KINDS),
  deletedAt: column.time.nullable(),
  changedTx: column.bigint,
  readerId: column.text.nullable(),
  unread: column.bool.nullable(),
  readVersion: column.int8.nullable(),
});
type SummaryRow = z.infer<typeof SummaryRow>;

/** What a list statement returns where it has no session to show, but something to say of the list. */
const NoRow = z.object({ sessionId: z.null() });

export function toSummary({ changedTx: _, readerId, unread, readVersion, ...session }: SummaryRow): SessionSummary {
  return { ...session, reader: readerId === null || unread === null ? null : { readerId, unread, readVersion } };
}

/** Up to which change the reader has read everything; -1 where it never has. */
const readTx = (tenantId: string, readerId: string): Sql => sql`(SELECT coalesce(max(read_tx), -1) FROM runplane.session_readers
  WHERE tenant_id = ${tenantId}::text AND reader_id = ${readerId}::text)`;

// A sub-select by primary key for each session, and not a join: a plan for any reader would read the cursors of all.
const ownReadVersion = (readerId: string): Sql => sql`(SELECT c.session_version FROM runplane.session_read_cursors c
  WHERE c.tenant_id = s.tenant_id AND c.session_id = s.session_id AND c.reader_id = ${readerId}::text)`;

/**
 * Sessions that have changed behind or from a number that the planner does not know. It takes one open bound for a third of a table, and two for
 * a narrow range, which this is: readers are near the end.
 */
export const changedSince = (bound: Sql): Sql => sql`s.changed_tx ${bound} AND s.changed_tx < 9223372036854775807`;

const isUnread = (tenantId: string, readerId: string): Sql =>
  sql`(s.changed_tx > ${readTx(tenantId, readerId)} AND s.version > coalesce(${ownReadVersion(readerId)}, 0))`;

function readerColumns(tenantId: string, readerId: string | undefined): Sql {
  if (readerId === undefined) return sql`NULL::text AS "readerId", NULL::boolean AS "unread", NULL::text AS "readVersion"`;
  return sql`${readerId}::text AS "readerId", ${isUnread(tenantId, readerId)} AS "unread",
    (CASE WHEN s.changed_tx <= ${readTx(tenantId, readerId)} THEN s.version ELSE ${ownReadVersion(readerId)} END)::text AS "readVersion"`;
}

const columns = (tenantId: string, readerId: string | undefined): Sql => sql`
  s.session_id AS "sessionId", s.project_id AS "projectId", s.backend_profile AS "backendProfile", s.conversation_id AS "conversationId",
  s.thread_id AS "threadId", s.title AS "title", s.summary::text AS "summary", s.execution_state::text AS "executionState",
  s.active_run_id AS "activeRunId", s.active_command_id AS "activeCommandId", s.last_run_id AS "lastRunId", s.last_command_id AS "lastCommandId",
  s.terminal_status AS "terminalStatus", s.failure_kind AS "failureKind", s.version::text AS "version",
  runplane.wire_time(s.created_at) AS "createdAt", runplane.wire_time(s.updated_at) AS "updatedAt",
  runplane.wire_time(s.last_activity_at) AS "lastActivityAt", runplane.wire_time(s.expires_at) AS "expiresAt",
  s.storage_kind::text AS "storageKind", runplane.wire_time(s.deleted_at) AS "deletedAt", s.changed_tx::text AS "changedTx", ${readerColumns(tenantId, readerId)}`;

/** One session as lists show it, without a lock. */
export async function findSummary(
  on: SqlExecutor,
  { tenantId, sessionId, readerId }: SessionKey & { readerId?: string | undefined },
): Promise<SessionSummary | undefined> {
  const row = await maybeRow(
    on,
    SummaryRow,
    sql`SELECT ${columns(tenantId, readerId)} FROM runplane.sessions s
        WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.deleted_at IS NULL`,
  );
  return row && toSummary(row);
}

export interface SessionFilter {
  readonly tenantId: string;
  readonly state: SessionListState;
  readonly projectId?: string | undefined;
  readonly backendProfile?: string | undefined;
  readonly readerId?: string | undefined;
}

/** A place in the list: (last_activity_at to the millisecond, session id); the column has no finer time. */
export interface SessionPlace {
  readonly lastActivityAt: string;
  readonly sessionId: string;
}

const Scan = z.object({ scanTime: column.time.nullable(), scanId: column.text.nullable() });
const PageRow = z.union([SummaryRow.extend(Scan.shape), NoRow.extend(Scan.shape)]);

export interface SessionPage {
  readonly sessions: SessionSummary[];
  /** Where the scan stopped at its limit with the page not full; undefined: it has seen the end. */
  readonly scannedTo: SessionPlace | undefined;
}

const words = (state: 'running' | 'idle' | 'terminal'): Sql =>
  ({
    running: sql`s.execution_state = 'running'`,
    idle: sql`s.execution_state = 'idle'`,
    terminal: sql`s.execution_state = 'terminal'`,
  })[state];

/** The conditions that no index serves, as matchesListState says them. */
function matches({ tenantId, state, projectId, backendProfile, readerId }: SessionFilter): Sql {
  const conditions = [
    sql`s.deleted_at IS NULL`,
    ...(state === 'default' ? [sql`s.last_run_id IS NOT NULL AND s.storage_kind <> 'evicted'`] : []),
    ...(state === 'unread' && readerId !== undefined ? [isUnread(tenantId, readerId)] : []),
    ...(projectId === undefined ? [] : [sql`s.project_id = ${projectId}::text`]),
    ...(backendProfile === undefined ? [] : [sql`s.backend_profile = ${backendProfile}::text`]),
  ];
  return joinSql(conditions, ' AND ');
}

const behind = ({ lastActivityAt, sessionId }: SessionPlace): Sql =>
  sql`(s.last_activity_at, s.session_id) < (${lastActivityAt}::timestamptz, ${sessionId}::text)`;
const ORDER = sql`ORDER BY s.last_activity_at DESC, s.session_id DESC`;

/**
 * One page of sessions, the last active first. Looks at no more than `scanRows` sessions, in the same order, and says where it stopped: rows and
 * that place come from one statement, hence one snapshot, or a session that has not moved could be passed over.
 */
export async function listSessionsPage(
  on: SqlExecutor,
  filter: SessionFilter,
  { after, limit, scanRows }: { after: SessionPlace | undefined; limit: number; scanRows: number },
): Promise<SessionPage> {
  const { tenantId, state, readerId } = filter;
  const scanned = joinSql(
    [
      sql`s.tenant_id COLLATE "C" = ${tenantId}::text`,
      ...(state === 'running' || state === 'idle' || state === 'terminal' ? [words(state)] : []),
      ...(after === undefined ? [] : [behind(after)]),
    ],
    ' AND ',
  );
  const found = await rows(
    on,
    PageRow,
    sql`
    WITH page AS MATERIALIZED (
      SELECT s.* FROM (SELECT s.* FROM runplane.sessions s WHERE ${scanned} ${ORDER} LIMIT ${scanRows}::int) s
      WHERE ${matches(filter)} ${ORDER} LIMIT ${limit}::int
    )
    SELECT runplane.wire_time(e.last_activity_at) AS "scanTime", e.session_id AS "scanId", ${columns(tenantId, readerId)}
    FROM (SELECT count(*) AS n FROM page) c LEFT JOIN LATERAL (
      SELECT s.last_activity_at, s.session_id FROM runplane.sessions s
      WHERE c.n < ${limit}::int AND ${scanned} ${ORDER} OFFSET ${scanRows - 1}::int LIMIT 1
    ) e ON true LEFT JOIN page s ON true ${ORDER}`,
  );
  const [first] = found;
  return {
    sessions: found.flatMap((row) => (row.sessionId === null ? [] : [withoutScan(row)])),
    scannedTo: first?.scanTime == null || first.scanId === null ? undefined : { lastActivityAt: first.scanTime, sessionId: first.scanId },
  };
}

function withoutScan({ scanTime: _, scanId: __, ...row }: SummaryRow & z.infer<typeof Scan>): SessionSummary {
  return toSummary(row);
}

/** How many sessions have changed since the reader has read everything; counts no further than `max`. */
export async function countChangedSince(
  on: SqlExecutor,
  { tenantId, readerId, max }: { tenantId: string; readerId: string; max: number },
): Promise<number> {
  const { n } = await oneRow(
    on,
    z.object({ n: column.int }),
    sql`SELECT count(*)::int AS "n" FROM (
          SELECT FROM runplane.sessions s WHERE s.tenant_id COLLATE "C" = ${tenantId}::text AND ${changedSince(sql`> ${readTx(tenantId, readerId)}`)}
          ORDER BY s.changed_tx, s.session_id LIMIT ${max}::int) changed`,
  );
  return n;
}

/** A page of unread sessions, found by their changes and not by their activity: for a reader that has read nearly everything. */
export async function listChangedPage(
  on: SqlExecutor,
  filter: SessionFilter & { readerId: string },
  { after, limit, scanRows }: { after: SessionPlace | undefined; limit: number; scanRows: number },
): Promise<SessionSummary[]> {
  const { tenantId, readerId } = filter;
  const found = await rows(
    on,
    SummaryRow,
    sql`
    WITH changed AS MATERIALIZED (
      SELECT s.* FROM runplane.sessions s
      WHERE s.tenant_id COLLATE "C" = ${tenantId}::text AND ${changedSince(sql`> ${readTx(tenantId, readerId)}`)}
      ORDER BY s.changed_tx, s.session_id LIMIT ${scanRows}::int
    )
    SELECT ${columns(tenantId, readerId)} FROM changed s
    WHERE ${matches(filter)} ${after === undefined ? sql`` : sql`AND ${behind(after)}`} ${ORDER} LIMIT ${limit}::int`,
  );
  return found.map(toSummary);
}

const ChangeRow = z.union([SummaryRow.extend(CHANGE_HEAD), NoRow.extend(CHANGE_HEAD)]);

/**
 * Sessions in the order of their last changes, behind a place and below the horizon: rows and bound from one statement, hence one snapshot.
 * What commits later has a number at or above that horizon. `from: 'end'` gives the last one alone. Deleted ones are told until they are erased.
 */
export async function listChangesPage(
  on: SqlExecutor,
  { tenantId, readerId, after, limit, from }: ChangesWanted & { readonly tenantId: string; readonly readerId: string | undefined },
): Promise<ChangePage<SessionSummary>> {
  const range =
    from === 'end'
      ? sql`ORDER BY s.changed_tx DESC, s.session_id DESC LIMIT 1`
      : sql`AND (s.changed_tx, s.session_id) > (${String(after.changedTx)}::bigint, ${after.id}::text)
            ORDER BY s.changed_tx, s.session_id LIMIT ${limit}::int`;
  const found = await rows(
    on,
    ChangeRow,
    sql`
    WITH h AS MATERIALIZED (SELECT runplane.feed_horizon() AS horizon, store_id FROM runplane.store),
    page AS MATERIALIZED (
      SELECT s.* FROM runplane.sessions s
      WHERE s.tenant_id COLLATE "C" = ${tenantId}::text AND s.changed_tx < (SELECT horizon FROM h) AND NOT s.copying ${range}
    )
    SELECT h.store_id AS "storeId", h.horizon::text AS "horizon", ${columns(tenantId, readerId)}
    FROM h LEFT JOIN page s ON true ORDER BY s.changed_tx, s.session_id`,
  );
  return changePage(found, (row) => {
    if (row.sessionId === null) return undefined;
    const { storeId: _, horizon: __, ...session } = row;
    return { place: { changedTx: row.changedTx, id: row.sessionId }, row: toSummary(session) };
  });
}
