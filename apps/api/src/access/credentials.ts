import { sha256Hex } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import type { Credential } from './api-key';
import { findCredential, writeLastUsed } from './api-keys.sql';

/**
 * How long an answer about a key is remembered, so that a hot append costs no second query. A revocation, an expiry and the end of a run
 * therefore take effect within this time in every process, not at once.
 */
export const CREDENTIAL_CACHE_MS = 3_000;

/**
 * A run token ends with its run. For this long after the end, the calls of a runner (routes that take the scope `runner` alone) still get
 * their documented answers: `stop: true` to a heartbeat, the stored outcome to a repeated finish, `run_closed` to an append. Reads do not.
 */
export const RUN_TOKEN_GRACE_MS = 10 * 60_000;

const CACHE_ENTRIES_MAX = 10_000;
const LAST_USED_EVERY_MS = 60_000;

interface Remembered {
  readonly credential: Promise<Credential | undefined>;
  readonly until: number;
}

/** Who is behind a key: looked up by hash, remembered for a few seconds, with the time of last use noted beside the hot path. */
export class Credentials {
  readonly #db: Db;
  readonly #remembered = new Map<string, Remembered>();
  readonly #noted = new Map<string, number>();
  readonly #used = new Set<string>();

  constructor(db: Db) {
    this.#db = db;
  }

  /** The credential of a key; undefined when it opens nothing (any more). */
  async find(key: string): Promise<Credential | undefined> {
    const credential = await this.#lookUp(sha256Hex(key));
    if (credential !== undefined) this.#note(credential.keyId);
    return credential;
  }

  /** Writes the last use of the keys seen since the last call, each at most once a minute. Returns how many. */
  async flushLastUsedOnce(): Promise<{ changed: number }> {
    const keyIds = [...this.#used];
    this.#used.clear();
    return { changed: keyIds.length === 0 ? 0 : await writeLastUsed(this.#db.sql, keyIds) };
  }

  #lookUp(hash: string): Promise<Credential | undefined> {
    const remembered = this.#remembered.get(hash);
    if (remembered !== undefined && performance.now() < remembered.until) return remembered.credential;
    // Calls that come while the first one asks wait for its answer. What is not there is forgotten at once: it may be made next.
    const credential = findCredential(this.#db.sql, { hash, graceMs: RUN_TOKEN_GRACE_MS });
    this.#remember(hash, credential);
    credential.then(
      (found) => {
        if (found === undefined) this.#remembered.delete(hash);
      },
      () => this.#remembered.delete(hash),
    );
    return credential;
  }

  #remember(hash: string, credential: Promise<Credential | undefined>): void {
    this.#remembered.delete(hash); // to the end: the oldest stands first
    this.#remembered.set(hash, { credential, until: performance.now() + CREDENTIAL_CACHE_MS });
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size > CACHE_ENTRIES_MAX && oldest !== undefined) this.#remembered.delete(oldest);
  }

  #note(keyId: string): void {
    const now = performance.now();
    if (now - (this.#noted.get(keyId) ?? -LAST_USED_EVERY_MS) < LAST_USED_EVERY_MS) return;
    if (this.#noted.size >= CACHE_ENTRIES_MAX) this.#noted.clear();
    this.#noted.set(keyId, now);
    this.#used.add(keyId);
  }
}
