import { DRIVER_STATES, type JsonObject, type Partition } from '@runplane/contracts';
import {
  column,
  emptySql,
  joinSql,
  maybeRow,
  rawSql,
  rows,
  sql,
  takingLock,
  type Sql,
  type SqlExecutor,
  type SqlRow,
  type Tx,
} from '@runplane/database';
import { z } from 'zod';
import type { FoldedHead } from './projections/projection';
import type { SessionKey } from './session.sql';

const HeadRow = z.object({
  header: column.jsonObject,
  incarnation: column.text,
  importedThrough: column.int8,
  lastSequence: column.int8,
  lastTx: column.bigint,
  leaseOwner: column.text.nullable(),
  leaseEpoch: column.int,
  leaseInMs: column.int.nullable(),
  driverState: column.state(DRIVER_STATES),
  snapshot: column.jsonObject.nullable(),
  needsRecovery: column.bool,
  windowId: column.text.nullable(),
  firstWindowId: column.text.nullable(),
  openSubmissions: column.int,
  openTurnSubmissions: column.int,
  viewsVersion: column.int,
  /** Grows whenever views change otherwise than by an append: what was read of them before is not what is there. */
  viewsEpoch: column.int,
  copying: column.bool,
  deletedAt: column.time.nullable(),
  createdAt: column.time,
  updatedAt: column.time,
  /** The database's clock in milliseconds, when the row was read. */
  now: column.int8,
  storeId: column.text,
});

/** Head of a session's log as read; whether it still stands so is judged by the statement that writes. */
export type HeadRow = z.infer<typeof HeadRow> & SessionKey & FoldedHead;

const COLUMNS = sql`
  header::text AS "header", incarnation AS "incarnation", imported_through::text AS "importedThrough", last_sequence::text AS "lastSequence",
  last_tx::text AS "lastTx", lease_owner AS "leaseOwner", lease_epoch AS "leaseEpoch",
  runplane.ms_until(lease_expires_at, runplane.app_now()) AS "leaseInMs", driver_state::text AS "driverState", snapshot::text AS "snapshot",
  needs_recovery AS "needsRecovery", window_id AS "windowId", first_window_id AS "firstWindowId", open_submissions AS "openSubmissions", open_turn_submissions AS "openTurnSubmissions",
  views_version AS "viewsVersion", views_epoch AS "viewsEpoch", copying AS "copying", runplane.wire_time(deleted_at) AS "deletedAt", runplane.wire_time(created_at) AS "createdAt",
  runplane.wire_time(updated_at) AS "updatedAt", (extract(epoch FROM runplane.app_now()) * 1000)::bigint::text AS "now",
  (SELECT store_id FROM runplane.store) AS "storeId"`;

const ofSession = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

export interface ReadHead {
  /** Expressions that give json, read in the same statement: what projections need of their views. */
  readonly loads?: readonly Sql[] | undefined;
  readonly appendId?: string | undefined;
}

export interface FoundHead {
  readonly head: HeadRow;
  /** The JSON text of each load, in their order. */
  readonly loaded: readonly (string | null)[];
  /** Where the append of this id stands; null: there is none. */
  readonly appendedAt: number | null;
}

const appendedAt = (key: SessionKey, appendId: string): Sql =>
  sql`, (SELECT sequence::text FROM runplane.session_events WHERE ${ofSession(key)} AND append_id = ${appendId}::text) AS "appendedAt"`;

/** Reads a head with what projections ask for, without a lock; undefined when there is no such session. */
export async function readHead(on: SqlExecutor, key: SessionKey, { loads = [], appendId }: ReadHead = {}): Promise<FoundHead | undefined> {
  const asked = loads.map((load, i) => sql`, (${load})::text AS ${rawSql(`"load${i}"`)}`);
  const [row] = await on.query(
    sql`SELECT ${COLUMNS}${asked.length === 0 ? emptySql : joinSql(asked, '')}${appendId === undefined ? emptySql : appendedAt(key, appendId)}
        FROM runplane.session_heads WHERE ${ofSession(key)}`,
  );
  return row && foundHead(row, key, loads.length);
}

function foundHead(row: SqlRow, { tenantId, sessionId }: SessionKey, loads: number): FoundHead {
  const head = HeadRow.safeParse(row);
  if (!head.success) throw new Error(`the head of session ${sessionId} has another shape:\n${z.prettifyError(head.error)}`);
  return {
    head: { ...head.data, tenantId, sessionId },
    loaded: Array.from({ length: loads }, (_, i) => column.text.nullable().parse(row[`load${i}`])),
    appendedAt: row['appendedAt'] == null ? null : column.int8.parse(row['appendedAt']),
  };
}

export const HeadWithLoad = HeadRow.extend({ load: column.json.nullable() });
/** The same as part of a statement over several sessions: one row, without its key. `load` is an expression that gives json. */
export const headWithLoad = (tenantId: Sql, sessionId: Sql, load: Sql): Sql =>
  sql`SELECT ${COLUMNS}, (${load})::text AS "load" FROM runplane.session_heads WHERE tenant_id = ${tenantId} AND session_id = ${sessionId}`;

/** Locks a session's head: nobody appends, and nobody takes the lease, until the transaction ends. Undefined when there is no such session. */
export async function lockHead(tx: Tx, key: SessionKey): Promise<HeadRow | undefined> {
  takingLock(tx, 'sessionHead', `${key.tenantId}/${key.sessionId}`);
  const [row] = await tx.query(
    sql`WITH l AS MATERIALIZED (SELECT * FROM runplane.session_heads WHERE ${ofSession(key)} FOR NO KEY UPDATE)
        SELECT ${COLUMNS} FROM l`,
  );
  if (row === undefined) return undefined;
  const { head } = foundHead(row, key, 0);
  tx.feed.raise(head.lastTx);
  return head;
}

/** Whether a session is there, however it stands. */
export function findLastSequence(on: SqlExecutor, key: SessionKey): Promise<{ lastSequence: number } | undefined> {
  return maybeRow(
    on,
    HeadRow.pick({ lastSequence: true }),
    sql`SELECT last_sequence::text AS "lastSequence" FROM runplane.session_heads WHERE ${ofSession(key)}`,
  );
}

const ListedHead = HeadRow.pick({ incarnation: true, header: true, lastSequence: true, createdAt: true, updatedAt: true }).extend({
  sessionId: column.text,
});
export type ListedHead = z.infer<typeof ListedHead>;

/** Heads of a tenant's sessions, newest first, behind a place in this order; deleted ones are left out. */
export function listHeads(
  on: SqlExecutor,
  tenantId: string,
  after: { createdAt: string; sessionId: string } | undefined,
  limit: number,
): Promise<ListedHead[]> {
  const behind =
    after === undefined
      ? emptySql
      : sql`AND created_at <= ${after.createdAt}::timestamptz AND (created_at < ${after.createdAt}::timestamptz OR session_id > ${after.sessionId}::text)`;
  return rows(
    on,
    ListedHead,
    sql`SELECT session_id AS "sessionId", incarnation AS "incarnation", header::text AS "header", last_sequence::text AS "lastSequence", runplane.wire_time(created_at) AS "createdAt",
          runplane.wire_time(updated_at) AS "updatedAt"
        FROM runplane.session_heads WHERE (tenant_id || '') = ${tenantId}::text AND deleted_at IS NULL ${behind}
        ORDER BY session_heads.created_at DESC, session_heads.session_id LIMIT ${limit}::int`,
  );
}

export interface NewHead extends SessionKey, Partition {
  readonly header: JsonObject;
  readonly incarnation: string;
  readonly projectId: string | null;
  readonly viewsVersion: number;
}

/**
 * The part of an INSERT of a session that makes the head of its log, from the relation `s` that returns the session.
 */
export const headOfNewSession = ({
  header,
  incarnation,
  viewsVersion,
}: Pick<NewHead, 'header' | 'incarnation' | 'viewsVersion'>): Sql => sql`
  INSERT INTO runplane.session_heads (tenant_id, session_id, header, incarnation, project_id, partition_key, shard, views_version, last_tx, created_at, updated_at,
    copying, deleted_at)
  SELECT s.tenant_id, s.session_id, ${JSON.stringify(header)}::json, ${incarnation}::text, s.project_id, s.partition_key, s.shard, ${viewsVersion}::int,
    s.last_tx, s.created_at, s.created_at, s.copying, s.deleted_at
  FROM s`;
