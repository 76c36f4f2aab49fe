import { randomBytes } from 'node:crypto';
import { newId, sha256Hex, type Scope } from '@runplane/contracts';

/** `rp_<32 hex of the key's id>_<256 random bits in base64url>`: fixed in shape, so that redaction and secret scanners know it. */
export const API_KEY_PATTERN = /^rp_[0-9a-f]{32}_[A-Za-z0-9_-]{43}$/;

export interface NewApiKey {
  readonly id: string;
  /** Shown once, to whoever asked for it; the store has its hash alone. */
  readonly key: string;
  readonly hash: string;
}

export function makeApiKey(): NewApiKey {
  const id = newId('key');
  const key = `rp_${id.slice('key_'.length).replaceAll('-', '')}_${randomBytes(32).toString('base64url')}`;
  return { id, key, hash: sha256Hex(key) };
}

/** The key of an Authorization header; undefined when there is none that could be ours, so that no query is spent on it. */
export function bearerKey(header: string | undefined): string | undefined {
  const key = /^bearer +(\S+) *$/i.exec(header ?? '')?.[1];
  return key !== undefined && API_KEY_PATTERN.test(key) ? key : undefined;
}

/** What a valid key allows. The tenant of a call comes from here and from nowhere else. */
export interface Credential {
  readonly keyId: string;
  readonly tenantId: string;
  readonly scopes: readonly Scope[];
  /** Set on a run token: it serves this run alone. */
  readonly runId: string | null;
  /** The run of a run token is over; see RUN_TOKEN_GRACE_MS. */
  readonly runEnded: boolean;
}
