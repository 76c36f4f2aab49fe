import { REBUILD_REMEMBER_MS, REBUILD_SCAN_ROWS } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { VIEWS_VERSION } from '../projections';
import type { SessionKey } from '../session.sql';
import { rebuildDue, type RebuildDue } from './rebuild-due';
import { rulesOf } from './rebuild-session';
import { forgetRebuilds, requestRebuilds } from './session-rebuild.sql';
import { listStaleHeads, listStaleTeamViews, type HeadPlace } from './stale-views.sql';

/** Where the search for stale views goes on; nothing: from the beginning. */
export interface StalePlaces {
  readonly heads?: HeadPlace | undefined;
  readonly team?: SessionKey | undefined;
}

export interface RebuildReport {
  /** Sessions that were rebuilt. */
  readonly changed: number;
  /** That could not be, and will be tried again. */
  readonly failed: number;
  /** That were found stale, and asked for. */
  readonly requested: number;
  readonly next: StalePlaces;
}

/**
 * One bounded pass of the background: looks for sessions whose views were built by older rules of the code, or have failed, or whose view of a
 * registered projection is missing, stale or of another version; asks for their rebuild; carries out what has been asked for, by whomever.
 *
 * Views of newer rules are left alone: in a rolling upgrade a newer process made them. Any number of processes may do it at once, a session is
 * rebuilt by one; what fails comes again after a back-off, ten times.
 */
export async function rebuildStaleOnce(
  db: Db,
  { after = {}, ...pass }: RebuildDue & { after?: StalePlaces | undefined },
): Promise<RebuildReport> {
  const rules = rulesOf(db);
  const heads = await listStaleHeads(db.sql, { olderThan: VIEWS_VERSION, after: after.heads, limit: REBUILD_SCAN_ROWS });
  const team = await findStaleTeamViews(db, after.team);
  const ofHeads = await requestRebuilds(db.sql, heads.sessions, { stale: { rules, again: true } });
  const ofTeam = await requestRebuilds(db.sql, team.sessions, { stale: { rules, again: false } });
  await forgetRebuilds(db.sql, { olderThanMs: REBUILD_REMEMBER_MS, limit: REBUILD_SCAN_ROWS });
  const done = await rebuildDue(db, pass);
  return { ...done, requested: ofHeads + ofTeam, next: { heads: heads.next, team: team.next } };
}

/** A page of the search for views of the projections that this handle has. */
export function findStaleTeamViews(db: Db, after: SessionKey | undefined): ReturnType<typeof listStaleTeamViews> {
  const { projections } = db.options;
  if (projections.length === 0) return Promise.resolve({ sessions: [], next: undefined });
  return listStaleTeamViews(db.sql, { projections, after, limit: REBUILD_SCAN_ROWS });
}
