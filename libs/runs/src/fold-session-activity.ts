import type { Db } from '@runplane/database';
import { foldActivity } from '@runplane/sessions';
import { listUnfoldedActivity } from './session-runs.sql';
import type { Sweep } from './sweep';

const ROWS_MAX = 500;
/** What a list of sessions is behind at most, together with the pause between two passes. */
const BEHIND_MS = 10_000;

/**
 * Carries what claimed runs have written into the last activity of their sessions, and into the end of those that live for a time from it. An
 * append does not write the session's row: that would make all appends of a session wait for its lock, and rewrite its indexes for each event.
 *
 * No version moves, since nothing is to be read anew. Bounded and stateless: what is folded is no candidate of the next pass.
 * Locks     sessions, SKIP LOCKED: a session that somebody holds is just being active.
 */
export async function foldSessionActivityOnce(
  db: Db,
  { behindMs = BEHIND_MS, limit = ROWS_MAX }: { behindMs?: number; limit?: number } = {},
): Promise<Sweep> {
  const activities = await listUnfoldedActivity(db.sql, { behindMs, limit });
  return { changed: activities.length === 0 ? 0 : await foldActivity(db.sql, activities), failed: 0 };
}
