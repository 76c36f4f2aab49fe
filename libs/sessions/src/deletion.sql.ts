import { column, maybeRow, oneRow, rawSql, rows, sql, takingLock, type LockRankName, type SqlExecutor, type Tx } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';
import { shadowOf, VIEW_TABLES } from './rebuild/shadow-views.sql';
import { changeSession, type SessionKey } from './session.sql';
import { unfinishedOf } from './submission-rows.sql';

const ofSession = ({ tenantId, sessionId }: SessionKey) => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;
const done = z.object({ done: column.int });

const OpenRow = z.object({ kind: z.enum(['submission', 'approval', 'input']), id: column.text, revision: column.int });

/** What is open in a session, in the order in which its end is told. */
export function listOpenInSession(on: SqlExecutor, key: SessionKey): Promise<z.infer<typeof OpenRow>[]> {
  return rows(
    on,
    OpenRow,
    sql`SELECT kind AS "kind", id AS "id", revision AS "revision" FROM (
          SELECT 'submission' AS kind, operation_id AS id, 0 AS revision, 1 AS part, place AS n FROM runplane.submissions s
          WHERE ${unfinishedOf('s', sql`${key.tenantId}::text`, sql`${key.sessionId}::text`)}
          UNION ALL
          SELECT 'approval', approval_id, revision, 2, requested_sequence FROM runplane.approvals WHERE ${ofSession(key)} AND state = 'pending'
          UNION ALL
          SELECT 'input', request_id, revision, 3, requested_sequence FROM runplane.input_requests WHERE ${ofSession(key)} AND state = 'pending'
        ) open ORDER BY part, n, id`,
  );
}

/** Whether more than so many are open in a session. */
export async function hasMoreOpen(on: SqlExecutor, key: SessionKey, openMax: number): Promise<boolean> {
  const open = (table: string) => sql`SELECT FROM ${rawSql(`runplane.${table}`)} WHERE ${ofSession(key)} AND state = 'pending'`;
  const { more } = await oneRow(
    on,
    z.object({ more: column.bool }),
    sql`SELECT count(*) > ${openMax}::int AS "more" FROM (
          ${open('submissions')} UNION ALL ${open('approvals')} UNION ALL ${open('input_requests')} LIMIT ${openMax + 1}::int
        ) open`,
  );
  return more;
}

const DeletedRow = z.object({ deletedAt: column.time, lastSequence: column.int8 });
export type DeletedSession = z.infer<typeof DeletedRow>;

/** Marks locked session and head; a lease is over with it, and the storage expires. */
export function writeDeleted(tx: Tx, key: SessionKey): Promise<DeletedSession> {
  return oneRow(
    tx,
    DeletedRow,
    sql`WITH t AS MATERIALIZED (SELECT runplane.app_now() AS now), s AS (
          UPDATE runplane.sessions SET deleted_at = t.now, ttl_seconds = NULL, expires_at = t.now, storage_attempts = 0, storage_ready_at = NULL, ${changeSession(tx)}
          FROM t WHERE ${ofSession(key)}
        )
        UPDATE runplane.session_heads SET deleted_at = t.now, lease_epoch = lease_epoch + (lease_owner IS NOT NULL)::int, lease_owner = NULL,
          lease_expires_at = NULL, needs_recovery = false, last_tx = greatest(last_tx, ${feedTx})
        FROM t WHERE ${ofSession(key)}
        RETURNING runplane.wire_time(deleted_at) AS "deletedAt", last_sequence::text AS "lastSequence"`,
  );
}

/** A place in the order of erasure: (deleted_at to the millisecond, tenant, session). */
export interface ErasurePlace extends SessionKey {
  readonly deletedAt: string;
}

const ErasableRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  deletedAt: column.time,
  incarnation: column.text,
  copying: column.bool,
});
export type ErasableSession = z.infer<typeof ErasableRow>;

/** Deleted sessions, and copies that nobody has gone on with, for so long; the longest deleted first. */
export function listErasable(
  on: SqlExecutor,
  { delayMs, copyingMs, after, limit }: { delayMs: number; copyingMs: number; after: ErasurePlace | null; limit: number },
): Promise<ErasableSession[]> {
  const behind =
    after === null
      ? sql``
      : sql`AND (deleted_at, tenant_id, session_id) > (${after.deletedAt}::timestamptz, ${after.tenantId}::text, ${after.sessionId}::text)`;
  return rows(
    on,
    ErasableRow,
    sql`SELECT tenant_id AS "tenantId", session_id AS "sessionId", runplane.wire_time(deleted_at) AS "deletedAt", incarnation AS "incarnation", copying AS "copying"
        FROM runplane.session_heads
        WHERE deleted_at IS NOT NULL AND deleted_at <= (SELECT runplane.app_now()) - (CASE WHEN copying THEN ${copyingMs}::int ELSE ${delayMs}::int END) * interval '1 millisecond'
          ${behind} ORDER BY deleted_at, tenant_id, session_id LIMIT ${limit}::int`,
  );
}

const HeldRow = z.object({
  storageKind: column.text,
  storageName: column.text.nullable(),
  storageNamespace: column.text.nullable(),
  runs: column.int,
});

/**
 * Locks a deleted session and its head, if they are still of the life that was found; undefined: they are gone, or another life has begun. `runs`:
 * how many of it are left, counted up to two.
 */
export async function lockDeleted(tx: Tx, key: SessionKey, incarnation: string): Promise<z.infer<typeof HeldRow> | undefined> {
  const id = `${key.tenantId}/${key.sessionId}`;
  takingLock(tx, 'session', id);
  await rows(tx, done, sql`SELECT 1 AS "done" FROM runplane.sessions WHERE ${ofSession(key)} FOR UPDATE`);
  takingLock(tx, 'sessionHead', id);
  await rows(tx, done, sql`SELECT 1 AS "done" FROM runplane.session_heads WHERE ${ofSession(key)} FOR UPDATE`);
  return maybeRow(
    tx,
    HeldRow,
    sql`SELECT s.storage_kind::text AS "storageKind", s.storage_pvc_name AS "storageName", s.storage_namespace AS "storageNamespace",
          (SELECT count(*)::int FROM (SELECT FROM runplane.runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.session_id LIMIT 2) r) AS "runs"
        FROM runplane.sessions s JOIN runplane.session_heads h ON h.tenant_id = s.tenant_id AND h.session_id = s.session_id
        WHERE s.tenant_id = ${key.tenantId}::text AND s.session_id = ${key.sessionId}::text AND h.incarnation = ${incarnation}::text AND h.deleted_at IS NOT NULL`,
  );
}

/** Empties what a session and its head say; who has it, and where it stands in the feed, stays until the end. Nothing shows its runs any more. */
export async function writeScrubbed(tx: Tx, key: SessionKey): Promise<void> {
  await tx.query(
    sql`WITH s AS (
          UPDATE runplane.sessions SET title = NULL, metadata = '{}', summary = '{}', conversation_id = NULL, thread_id = NULL, last_run_id = NULL,
            last_command_id = NULL, terminal_status = NULL, failure_kind = NULL, execution_state = 'idle', storage_last_error = NULL
          WHERE ${ofSession(key)}
        )
        UPDATE runplane.session_heads SET header = json_build_object('id', session_id), snapshot = NULL, window_id = NULL, first_window_id = NULL, driver_state = 'idle',
          open_submissions = 0, open_turn_submissions = 0, claim_epoch = greatest(claim_epoch,
            (SELECT max(claim_epoch) FROM runplane.submissions WHERE ${ofSession(key)}), (SELECT max(epoch) FROM runplane.submission_heads WHERE ${ofSession(key)}))
        WHERE ${ofSession(key)} RETURNING 1 AS "done"`,
  );
}

/**
 * Everything that hangs on a session's log, the log itself last. Its rebuild first: that waits for the page that is being folded, and there is no
 * next one, which would put rows beside views that are gone.
 */
export const ERASED_TABLES: readonly string[] = [
  'session_rebuilds',
  ...VIEW_TABLES.map(({ table }) => table),
  'submission_heads',
  'session_events',
];
/** Of these tables, the locks that others take. */
const LOCKED = new Map<string, LockRankName>([
  ['session_rebuilds', 'sessionRebuild'],
  ['submission_heads', 'submissionHead'],
]);

/**
 * Removes some rows of a table, and of a rebuild's rows beside them, under the lock of their session; returns how many went. With events goes what
 * the feed has of them, which is read from the log.
 */
export async function deleteSessionRows(tx: Tx, key: SessionKey, { table, limit }: { table: string; limit: number }): Promise<number> {
  const rank = LOCKED.get(table);
  if (rank !== undefined) takingLock(tx, rank, `${key.tenantId}/${key.sessionId}`);
  const name = rawSql(`runplane.${table}`);
  const { n } = await oneRow(
    tx,
    z.object({ n: column.int }),
    sql`WITH gone AS (
          DELETE FROM ${name} WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM ${name} WHERE tenant_id IN (${key.tenantId}::text, ${shadowOf(key.tenantId)}::text) AND session_id = ${key.sessionId}::text LIMIT ${limit}::int
          )) RETURNING 1
        )
        SELECT count(*)::int AS "n" FROM gone`,
  );
  return n;
}

/** Removes the two rows of a locked session that has nothing else left; what stays is a tombstone, without a text. None of a copy that nobody saw. */
export async function deleteSessionRow(tx: Tx, key: SessionKey): Promise<void> {
  await oneRow(
    tx,
    done,
    sql`WITH h AS (
          DELETE FROM runplane.session_heads WHERE ${ofSession(key)}
          RETURNING tenant_id, session_id, incarnation, last_sequence, imported_through, last_tx, lease_epoch, claim_epoch, deleted_at, copying
        ), t AS (
          INSERT INTO runplane.session_tombstones (tenant_id, session_id, incarnation, last_sequence, copied_through, last_tx, lease_epoch, claim_epoch, deleted_at)
          SELECT tenant_id, session_id, incarnation, last_sequence, imported_through, last_tx, lease_epoch, claim_epoch, deleted_at FROM h WHERE NOT copying
        )
        SELECT 1 AS "done" FROM h`,
  );
  await oneRow(tx, done, sql`DELETE FROM runplane.sessions WHERE ${ofSession(key)} RETURNING 1 AS "done"`);
}
