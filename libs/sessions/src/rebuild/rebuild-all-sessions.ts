import { REBUILD_SCAN_ROWS } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { VIEWS_VERSION } from '../projections';
import type { SessionKey } from '../session.sql';
import { rebuildDue, type RebuildDue } from './rebuild-due';
import { findStaleTeamViews } from './rebuild-stale-once';
import { requestRebuilds } from './session-rebuild.sql';
import { listLogs, listStaleHeads } from './stale-views.sql';

export interface RebuiltAll {
  readonly requested: number;
  readonly changed: number;
  readonly failed: number;
}

/**
 * Rebuilds the views of every session, or of every one of a tenant, to the end: asks for all of them, then works off what waits. Other processes
 * may share the work (rebuildStaleOnce, or this with `stale`); killed, it goes on with what is left when it is called with `stale`.
 *
 * `stale`: only those that need it. Errors of single sessions are told by `onFailed` and tried again in the background.
 */
export async function rebuildAllSessions(
  db: Db,
  {
    tenantId,
    stale = false,
    onRequested,
    ...pass
  }: Omit<RebuildDue, 'limit'> & {
    tenantId?: string | undefined;
    stale?: boolean | undefined;
    onRequested?: ((sessions: number) => void) | undefined;
  },
): Promise<RebuiltAll> {
  const requested = stale ? await requestStale(db, pass) : await requestAll(db, { tenantId, signal: pass.signal });
  onRequested?.(requested);
  return { requested, ...(await rebuildDue(db, { ...pass, limit: Infinity })) };
}

async function requestAll(
  db: Db,
  { tenantId, signal }: { tenantId: string | undefined; signal: AbortSignal | undefined },
): Promise<number> {
  let requested = 0;
  for (let after: SessionKey | undefined; ;) {
    signal?.throwIfAborted();
    const page = await listLogs(db.sql, { tenantId, after, limit: REBUILD_SCAN_ROWS });
    requested += await requestRebuilds(db.sql, page);
    after = page.at(-1);
    if (page.length < REBUILD_SCAN_ROWS) return requested;
  }
}

/** Asks for everything that is stale; what has failed too often is tried again. */
async function requestStale(db: Db, { signal }: { signal?: AbortSignal | undefined }): Promise<number> {
  let requested = 0;
  let heads: Awaited<ReturnType<typeof listStaleHeads>> | undefined;
  do {
    signal?.throwIfAborted();
    heads = await listStaleHeads(db.sql, { olderThan: VIEWS_VERSION, after: heads?.next, limit: REBUILD_SCAN_ROWS });
    requested += await requestRebuilds(db.sql, heads.sessions);
  } while (heads.next !== undefined);
  let team: Awaited<ReturnType<typeof findStaleTeamViews>> | undefined;
  do {
    signal?.throwIfAborted();
    team = await findStaleTeamViews(db, team?.next);
    requested += await requestRebuilds(db.sql, team.sessions);
  } while (team.next !== undefined);
  return requested;
}
