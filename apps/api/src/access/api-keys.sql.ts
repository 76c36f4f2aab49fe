import { SCOPES, type Scope } from '@runplane/contracts';
import { column, maybeRow, oneRow, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { Credential } from './api-key';

const CredentialRow = z.object({
  keyId: column.text,
  tenantId: column.text,
  scopes: column.json.pipe(z.array(z.enum(SCOPES))),
  runId: column.text.nullable(),
  runEnded: column.bool,
});

/**
 * The credential behind a hash; undefined when there is none, or it is revoked or expired, or its run ended longer ago than `graceMs`, or
 * its run does not exist. Judged by the database's clock.
 */
export function findCredential(on: SqlExecutor, { hash, graceMs }: { hash: string; graceMs: number }): Promise<Credential | undefined> {
  return maybeRow(
    on,
    CredentialRow,
    sql`
      SELECT k.id AS "keyId", k.tenant_id AS "tenantId", to_json(k.scopes)::text AS "scopes", k.run_id AS "runId",
             r.finished_at IS NOT NULL AS "runEnded"
        FROM runplane.api_keys k
        LEFT JOIN runplane.runs r ON r.tenant_id = k.tenant_id AND r.id = k.run_id
       WHERE k.key_hash = ${hash}::text
         AND k.revoked_at IS NULL
         AND (k.expires_at IS NULL OR k.expires_at > (SELECT runplane.app_now()))
         AND (k.run_id IS NULL OR r.id IS NOT NULL)
         AND (r.finished_at IS NULL OR r.finished_at > (SELECT runplane.app_now()) - ${graceMs}::int * interval '1 millisecond')`,
  );
}

export interface ApiKeyToStore {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  readonly hash: string;
  readonly scopes: readonly Scope[];
  readonly runId: string | null;
  /** From now, by the database's clock; null: until it is revoked. */
  readonly lifetimeSeconds: number | null;
}

/** Stores a new key; the tenant must exist. */
export async function insertApiKey(on: SqlExecutor, key: ApiKeyToStore): Promise<void> {
  await oneRow(
    on,
    z.object({ id: column.text }),
    sql`
      INSERT INTO runplane.api_keys (id, tenant_id, name, key_hash, scopes, run_id, expires_at)
      VALUES (${key.id}::text, ${key.tenantId}::text, ${key.name}::text, ${key.hash}::text, ${[...key.scopes]}::text[], ${key.runId}::text,
              runplane.app_now() + ${key.lifetimeSeconds}::int * interval '1 second')
      RETURNING id AS "id"`,
  );
}

const ApiKeyRow = z.object({
  id: column.text,
  tenantId: column.text,
  name: column.text,
  scopes: column.json.pipe(z.array(z.string())),
  runId: column.text.nullable(),
  createdAt: column.time,
  expiresAt: column.time.nullable(),
  lastUsedAt: column.time.nullable(),
  revokedAt: column.time.nullable(),
});
/** A key as an operator sees it: everything but the secret. */
export type StoredApiKey = z.infer<typeof ApiKeyRow>;

const COLUMNS = sql`
  id AS "id", tenant_id AS "tenantId", name AS "name", to_json(scopes)::text AS "scopes", run_id AS "runId",
  runplane.wire_time(created_at) AS "createdAt", runplane.wire_time(expires_at) AS "expiresAt",
  runplane.wire_time(last_used_at) AS "lastUsedAt", runplane.wire_time(revoked_at) AS "revokedAt"`;

/** The keys of a tenant, oldest first; run tokens only on request. */
export function listApiKeys(on: SqlExecutor, { tenantId, runTokens }: { tenantId: string; runTokens: boolean }): Promise<StoredApiKey[]> {
  return rows(
    on,
    ApiKeyRow,
    sql`
      SELECT ${COLUMNS} FROM runplane.api_keys
       WHERE tenant_id = ${tenantId}::text AND (run_id IS NULL OR ${runTokens}::bool)
       ORDER BY created_at, id`,
  );
}

/** Revokes a key for good; the time of the first revocation stays. undefined when there is no such key. */
export function writeRevoked(on: SqlExecutor, keyId: string): Promise<StoredApiKey | undefined> {
  return maybeRow(
    on,
    ApiKeyRow,
    sql`
      UPDATE runplane.api_keys SET revoked_at = coalesce(revoked_at, runplane.app_now())
       WHERE id = ${keyId}::text
      RETURNING ${COLUMNS}`,
  );
}

/** Notes that keys are in use. Rows that another process is writing are left to it. Returns how many were written. */
export async function writeLastUsed(on: SqlExecutor, keyIds: readonly string[]): Promise<number> {
  const written = await rows(
    on,
    z.object({ id: column.text }),
    sql`
      WITH used AS MATERIALIZED (
        SELECT id FROM runplane.api_keys WHERE id = ANY(${[...keyIds]}::text[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
      )
      UPDATE runplane.api_keys k SET last_used_at = runplane.app_now() FROM used WHERE k.id = used.id
      RETURNING k.id AS "id"`,
  );
  return written.length;
}

/** Deletes tokens of runs that ended longer than `graceMs` ago, or are gone, `limit` at most. Returns how many. */
export async function deleteOldRunTokens(on: SqlExecutor, { graceMs, limit }: { graceMs: number; limit: number }): Promise<number> {
  const deleted = await rows(
    on,
    z.object({ id: column.text }),
    sql`
      WITH old AS MATERIALIZED (
        SELECT k.id FROM runplane.api_keys k
          LEFT JOIN runplane.runs r ON r.tenant_id = k.tenant_id AND r.id = k.run_id
         WHERE k.run_id IS NOT NULL
           AND (r.id IS NULL OR r.finished_at < (SELECT runplane.app_now()) - ${graceMs}::int * interval '1 millisecond')
         LIMIT ${limit}::int
         FOR UPDATE OF k SKIP LOCKED
      )
      DELETE FROM runplane.api_keys k USING old WHERE k.id = old.id
      RETURNING k.id AS "id"`,
  );
  return deleted.length;
}
