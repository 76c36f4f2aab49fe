import { ApiKeyNotFound, type Scope } from '@runplane/contracts';
import { requireTenant, type Db, type SqlExecutor } from '@runplane/database';
import { makeApiKey } from './api-key';
import { deleteOldRunTokens, insertApiKey, writeRevoked, type StoredApiKey } from './api-keys.sql';
import { RUN_TOKEN_GRACE_MS } from './credentials';

export interface CreateApiKey {
  readonly tenantId: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly lifetimeSeconds?: number | undefined;
}

/** Makes a key; this answer is the only place where it can be seen. Errors: TenantNotFound. */
export async function createApiKey(
  on: SqlExecutor,
  { tenantId, name, scopes, lifetimeSeconds }: CreateApiKey,
): Promise<{ id: string; key: string }> {
  await requireTenant(on, tenantId);
  const { id, key, hash } = makeApiKey();
  await insertApiKey(on, { id, tenantId, name, hash, scopes, runId: null, lifetimeSeconds: lifetimeSeconds ?? null });
  return { id, key };
}

/** Makes a token for the runner of one run: scope `runner`, no other run, over with it (see RUN_TOKEN_GRACE_MS). */
export async function issueRunToken(on: SqlExecutor, { tenantId, runId }: { tenantId: string; runId: string }): Promise<string> {
  const { id, key, hash } = makeApiKey();
  await insertApiKey(on, { id, tenantId, name: 'run token', hash, scopes: ['runner'], runId, lifetimeSeconds: null });
  return key;
}

/** Revokes a key; processes that have just seen it let it go within CREDENTIAL_CACHE_MS. Repeat: safe. Errors: ApiKeyNotFound. */
export async function revokeApiKey(on: SqlExecutor, keyId: string): Promise<StoredApiKey> {
  const revoked = await writeRevoked(on, keyId);
  if (revoked === undefined) throw new ApiKeyNotFound(`There is no key ${keyId}: \`runplane keys list\` shows them.`, { keyId });
  return revoked;
}

const PRUNED_AT_ONCE = 500;

/** Deletes tokens that no longer open anything, a bounded number. */
export async function pruneRunTokensOnce(db: Db): Promise<{ changed: number }> {
  return { changed: await deleteOldRunTokens(db.sql, { graceMs: RUN_TOKEN_GRACE_MS, limit: PRUNED_AT_ONCE }) };
}
