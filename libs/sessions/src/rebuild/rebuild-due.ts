import { REBUILD_LEASE_MS, REBUILD_SESSIONS_DEFAULT } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import type { SessionKey } from '../session.sql';
import { runRebuild, type RebuildOptions, type RebuiltSession } from './rebuild-session';
import { claimRebuilds } from './session-rebuild.sql';

export interface RebuildDue extends RebuildOptions {
  /** Sessions to rebuild in this pass. */
  readonly limit?: number | undefined;
  readonly onRebuilt?: ((session: RebuiltSession) => void) | undefined;
  readonly onFailed?: ((session: SessionKey, error: unknown) => void) | undefined;
}

/** Claims and carries out rebuilds that are due, one after the other. */
export async function rebuildDue(
  db: Db,
  { limit = REBUILD_SESSIONS_DEFAULT, onRebuilt, onFailed, ...options }: RebuildDue,
): Promise<{ changed: number; failed: number }> {
  const done = { changed: 0, failed: 0 };
  while (done.changed + done.failed < limit && !isAborted(options.signal)) {
    const [claim] = await claimRebuilds(db.sql, { owner: options.owner, leaseMs: options.leaseMs ?? REBUILD_LEASE_MS, limit: 1 });
    if (claim === undefined) break;
    try {
      const rebuilt = await runRebuild(db, claim, options);
      done.changed += 1;
      onRebuilt?.(rebuilt);
    } catch (error) {
      if (isAborted(options.signal)) break;
      done.failed += 1;
      onFailed?.(claim, error);
    }
  }
  return done;
}

// In a function of its own: the compiler takes what it was before the work for what it is after it.
const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true;
