import { REBUILD_SCAN_ROWS, type RebuildStatus, type SessionRebuild } from '@runplane/contracts';
import { executorOf, isTx, type At } from '@runplane/database';
import { VIEWS_VERSION } from '../projections';
import { sessionNotFound } from '../session';
import type { SessionKey } from '../session.sql';
import { findRebuild, requestRebuilds } from './session-rebuild.sql';
import { countRebuilds, countStaleHeads } from './stale-views.sql';

/**
 * Asks for a rebuild of a session's views; a process with background loops does it soon. One under way goes on, one that has failed too often
 * is tried again.
 *
 * Returns   how it stands.   Errors: SessionNotFound.   Repeat: safe.
 */
export async function requestSessionRebuild(at: At, key: SessionKey): Promise<SessionRebuild> {
  await requestRebuilds(executorOf(at), [key]);
  return getSessionRebuild(at, key);
}

/** How the views of a session stand, and their last rebuild. Errors: SessionNotFound. */
export async function getSessionRebuild(at: At, { tenantId, sessionId }: SessionKey): Promise<SessionRebuild> {
  const found = await findRebuild(executorOf(at), { tenantId, sessionId });
  if (found === undefined) throw sessionNotFound(sessionId);
  const { views, ...rebuild } = found;
  const registered = new Map(registeredOf(at).map(({ key, version }) => [key, version]));
  const stale = views.find(({ key, version, reason }) => reason !== null || (registered.get(key) ?? version) !== version);
  const staleReason =
    rebuild.viewsVersion === 0
      ? 'a built-in view has failed'
      : rebuild.viewsVersion !== VIEWS_VERSION
        ? `built by version ${rebuild.viewsVersion} of the rules`
        : stale === undefined
          ? null
          : `view ${stale.key}: ${stale.reason ?? `built by version ${stale.version} of its rules`}`;
  return { sessionId, ...rebuild, currentVersion: VIEWS_VERSION, stale: staleReason !== null, staleReason };
}

const registeredOf = (at: At) => (isTx(at) ? at.projections : at.options.projections);

/** How many sessions of a tenant, or of all, have views of older rules, and how their rebuilds stand; counted up to a thousand. */
export async function getRebuildStatus(at: At, { tenantId }: { tenantId?: string | undefined } = {}): Promise<RebuildStatus> {
  const counts = await countRebuilds(executorOf(at), { olderThan: VIEWS_VERSION, tenantId, countMax: REBUILD_SCAN_ROWS });
  const most = Math.max(counts.staleCount, counts.waitingCount + counts.runningCount);
  return { currentVersion: VIEWS_VERSION, ...counts, isExact: most < REBUILD_SCAN_ROWS };
}

/** For the health of a store: how many sessions of it have stale views, counted up to a thousand. */
export async function countStaleViews(at: At): Promise<{ count: number; isExact: boolean }> {
  const count = await countStaleHeads(executorOf(at), { olderThan: VIEWS_VERSION, countMax: REBUILD_SCAN_ROWS });
  return { count, isExact: count < REBUILD_SCAN_ROWS };
}
