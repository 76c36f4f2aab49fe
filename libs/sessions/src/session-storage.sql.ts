import type { RefreshSessionStorage, StorageKind } from '@runplane/contracts';
import { STORAGE_EVICTION_ATTEMPTS_MAX } from '@runplane/contracts';
import { column, joinSql, rawSql, rows, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { changeSession, one, takeStorageLease, type SessionKey } from './session.sql';

// The storage of sessions: what is attached, and the lease of whoever is deleting it. A hold that ends or is taken away moves its epoch.

/** Replaces every storage column of a locked session, and fences whoever was deleting what was attached before. */
export function writeStorage(tx: Tx, { tenantId, sessionId }: SessionKey, storage: RefreshSessionStorage): Promise<void> {
  const { kind, name, namespace, phase, sizeBytes, filesCount, sha256, rolloutSubdir } = storage;
  return one(
    tx,
    sql`UPDATE runplane.sessions SET storage_kind = ${kind}::runplane.storage_kind, storage_pvc_name = ${name ?? null}::text,
          storage_namespace = ${namespace ?? null}::text, storage_pvc_phase = ${phase ?? null}::text,
          storage_size_bytes = ${sizeBytes == null ? null : String(sizeBytes)}::bigint, storage_files_count = ${filesCount ?? null}::int,
          storage_sha256 = ${sha256 ?? null}::text, rollout_subdir = coalesce(${rolloutSubdir ?? null}::text, rollout_subdir),
          storage_updated_at = runplane.app_now(), storage_version = storage_version + 1, storage_attempts = 0, storage_ready_at = NULL,
          storage_last_error = NULL, ${takeStorageLease}, ${changeSession(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

/** Notes that the storage of a locked session is gone; its name stays, for whoever looks for it. */
export function writeEvicted(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  return one(
    tx,
    sql`UPDATE runplane.sessions SET storage_kind = 'evicted', storage_evicted_at = runplane.app_now(), storage_updated_at = runplane.app_now(),
          storage_version = storage_version + 1, storage_attempts = 0, storage_ready_at = NULL, storage_last_error = NULL,
          ${takeStorageLease}, ${changeSession(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

/** Gives a held deletion back, to be tried again after a delay. */
export function writeStorageReleased(
  tx: Tx,
  { tenantId, sessionId }: SessionKey,
  { delayMs, lastError }: { delayMs: number; lastError: string | null },
): Promise<void> {
  return one(
    tx,
    sql`UPDATE runplane.sessions SET storage_ready_at = runplane.app_now() + ${delayMs}::int * interval '1 millisecond',
          storage_last_error = ${lastError}::text, ${takeStorageLease}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

const ClaimRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  kind: z.enum(['pvc', 'folder']),
  name: column.text,
  namespace: column.text.nullable(),
  storageVersion: column.int,
  owner: column.text,
  epoch: column.int,
  attempts: column.int,
  leaseRemainingMs: column.int,
});
export type StorageClaim = z.infer<typeof ClaimRow>;

export type CollectableKind = Exclude<StorageKind, 'none' | 'evicted'>;

// Expired, by the database's clock, and free: no open turn, nobody deleting it. The words of the partial index are constants.
const collectable = (kinds: readonly CollectableKind[]) => sql`expires_at IS NOT NULL AND storage_kind IN ('pvc', 'folder')
  AND storage_kind = ANY (${[...kinds]}::text[]::runplane.storage_kind[]) AND expires_at <= (SELECT runplane.app_now()) AND active_run_id IS NULL
  AND storage_attempts < ${rawSql(String(STORAGE_EVICTION_ATTEMPTS_MAX))}
  AND (storage_ready_at IS NULL OR storage_ready_at <= (SELECT runplane.app_now()))
  AND (storage_lease_expires_at IS NULL OR storage_lease_expires_at <= (SELECT runplane.app_now()))`;

/**
 * Leases the deletion of expired storage, the longest expired first. Rows that somebody has locked are passed over. The attempt is counted.
 * It does not see runs: libs/runs looks for open ones in a second statement of the same transaction.
 */
export function leaseExpiredStorage(
  tx: Tx,
  { owner, leaseMs, limit, kinds }: { owner: string; leaseMs: number; limit: number; kinds: readonly CollectableKind[] },
): Promise<StorageClaim[]> {
  return rows(
    tx,
    ClaimRow,
    sql`WITH due AS MATERIALIZED (
          SELECT tenant_id, session_id FROM runplane.sessions WHERE ${collectable(kinds)}
          ORDER BY expires_at, session_id LIMIT ${rawSql(String(limit))} FOR NO KEY UPDATE SKIP LOCKED
        ), locked AS MATERIALIZED (
          SELECT tenant_id, session_id, runplane.app_now() AS now FROM due
        )
        UPDATE runplane.sessions t SET storage_lease_owner = ${owner}::text, storage_lease_epoch = t.storage_lease_epoch + 1,
          storage_lease_expires_at = locked.now + ${leaseMs}::int * interval '1 millisecond', storage_attempts = t.storage_attempts + 1
        FROM locked
        WHERE t.tenant_id = locked.tenant_id AND t.session_id = locked.session_id AND t.expires_at <= locked.now
        RETURNING t.tenant_id AS "tenantId", t.session_id AS "sessionId", t.storage_kind::text AS "kind", t.storage_pvc_name AS "name",
          t.storage_namespace AS "namespace", t.storage_version AS "storageVersion", t.storage_lease_owner AS "owner",
          t.storage_lease_epoch AS "epoch", t.storage_attempts AS "attempts", runplane.ms_until(t.storage_lease_expires_at, locked.now) AS "leaseRemainingMs"`,
  );
}

/** Gives claims of this transaction back as if they had not been made, but for the epoch; they are looked at again after a delay. */
export async function returnStorageClaims(tx: Tx, claims: readonly SessionKey[], delayMs: number): Promise<void> {
  if (claims.length === 0) return;
  await tx.query(sql`
    UPDATE runplane.sessions t SET ${takeStorageLease}, storage_attempts = t.storage_attempts - 1,
      storage_ready_at = runplane.app_now() + ${delayMs}::int * interval '1 millisecond'
    FROM unnest(${claims.map(({ tenantId }) => tenantId)}::text[], ${claims.map(({ sessionId }) => sessionId)}::text[]) c (tenant_id, session_id)
    WHERE t.tenant_id = c.tenant_id AND t.session_id = c.session_id`);
}

/** Storage as a session names it. */
export interface NamedStorage extends SessionKey {
  readonly kind: CollectableKind;
  readonly name: string;
  readonly namespace?: string | null | undefined;
}

/**
 * Other sessions `s` of the tenant with storage that is, holds or lies in that of `c` (tenant_id, session_id, kind, name, namespace): deleting the one
 * deletes of the other. Two conditions, each by the index of names. A claim that names no namespace may lie in any.
 */
const overlaps = (condition: Sql): Sql => {
  const of = sql`FROM runplane.sessions s WHERE s.tenant_id = c.tenant_id AND s.session_id <> c.session_id AND s.storage_kind IN ('pvc', 'folder')
    AND s.storage_kind::text = c.kind AND (c.kind = 'folder' OR s.storage_namespace IS NULL OR c.namespace IS NULL OR s.storage_namespace = c.namespace)
    AND ${condition}`;
  const above = sql`s.storage_pvc_name COLLATE "C" = ANY (ARRAY(SELECT array_to_string((string_to_array(c.name, '/'))[1:n], '/')
    FROM generate_series(1, cardinality(string_to_array(c.name, '/'))) n))`;
  const below = sql`s.storage_pvc_name COLLATE "C" > c.name || '/' AND s.storage_pvc_name COLLATE "C" < c.name || '0'`; // behind the slash comes the zero
  return sql`SELECT s.tenant_id, s.session_id ${of} AND ${above} UNION ALL SELECT s.tenant_id, s.session_id ${of} AND ${below}`;
};

const named = (storages: readonly NamedStorage[]): Sql => sql`unnest(${storages.map(({ tenantId }) => tenantId)}::text[],
  ${storages.map(({ sessionId }) => sessionId)}::text[], ${storages.map(({ kind }) => kind)}::text[], ${storages.map(({ name }) => name)}::text[],
  ${storages.map(({ namespace }) => namespace ?? null)}::text[]) AS c (tenant_id, session_id, kind, name, namespace)`;

const KeyRow = z.object({ tenantId: column.text, sessionId: column.text });

/** Those whose storage another session uses that has not expired, or has an open run. */
export function listSharedStorage(on: SqlExecutor, storages: readonly NamedStorage[]): Promise<SessionKey[]> {
  const uses = sql`(s.expires_at IS NULL OR s.expires_at > (SELECT runplane.app_now()) OR (
    SELECT true FROM runplane.runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.session_id AND r.finished_at IS NULL LIMIT 1))`;
  return rows(
    on,
    KeyRow,
    sql`SELECT c.tenant_id AS "tenantId", c.session_id AS "sessionId" FROM ${named(storages)} WHERE EXISTS (${overlaps(uses)})`,
  );
}

/** Expired sessions that share a storage: whoever is about to attach it locks them, or finds them being deleted. By id. */
export async function listExpiredSharers(on: SqlExecutor, storage: NamedStorage): Promise<string[]> {
  const expired = sql`s.expires_at <= (SELECT runplane.app_now())`;
  const found = await rows(
    on,
    z.object({ sessionId: column.text }),
    sql`SELECT DISTINCT o.session_id AS "sessionId" FROM ${named([storage])} CROSS JOIN LATERAL (${overlaps(expired)}) o`,
  );
  return found.map(({ sessionId }) => sessionId);
}

const ExpiredRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  kind: z.enum(['pvc', 'folder']),
  name: column.text,
  namespace: column.text.nullable(),
  storageVersion: column.int,
  expiresAt: column.time,
  attempts: column.int,
  lastError: column.text.nullable(),
  isBusy: column.bool,
});
export type ExpiredStorage = z.infer<typeof ExpiredRow>;

/** A look at what has expired, without a lock: the longest expired first, behind a place. */
export function listExpiredStorage(
  on: SqlExecutor,
  {
    tenantId,
    after,
    limit,
  }: { tenantId: string | undefined; after: { expiresAt: string; sessionId: string; tenantId: string } | undefined; limit: number },
): Promise<ExpiredStorage[]> {
  const conditions = [
    sql`expires_at IS NOT NULL AND storage_kind IN ('pvc', 'folder') AND expires_at <= (SELECT runplane.app_now())`,
    ...(tenantId === undefined ? [] : [sql`tenant_id = ${tenantId}::text`]),
    ...(after === undefined
      ? []
      : [
          sql`(expires_at, session_id) >= (${after.expiresAt}::timestamptz, ${after.sessionId}::text)
              AND (expires_at, session_id, tenant_id) > (${after.expiresAt}::timestamptz, ${after.sessionId}::text, ${after.tenantId}::text)`,
        ]),
  ];
  return rows(
    on,
    ExpiredRow,
    sql`SELECT tenant_id AS "tenantId", session_id AS "sessionId", storage_kind::text AS "kind", storage_pvc_name AS "name",
          storage_namespace AS "namespace", storage_version AS "storageVersion", runplane.wire_time(expires_at) AS "expiresAt",
          storage_attempts AS "attempts", storage_last_error AS "lastError", active_run_id IS NOT NULL AS "isBusy"
        FROM runplane.sessions WHERE ${joinSql(conditions, ' AND ')}
        ORDER BY expires_at, session_id, tenant_id LIMIT ${limit}::int`,
  );
}
