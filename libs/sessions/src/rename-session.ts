import { InvalidRequest, parseInput, RenameSession, repairText, TITLE_CODE_POINTS_MAX, type ChangedSession } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import type { z } from 'zod';
import { getSession, requireLockedSession } from './session';
import { titleFrom } from './session-decisions';
import { writeTitle, type SessionKey } from './session.sql';

/**
 * Gives a session another title; no turn overwrites it.
 *
 * Input     title: 1 to 120 code points; white space becomes single spaces.
 * Returns   the session; `changed: false` when it was called so already.
 * Locks     session.   Writes: sessions (a new version, no activity).
 * Errors    SessionNotFound, InvalidRequest.
 */
export async function renameSession(
  tx: Tx,
  { tenantId, sessionId, ...input }: SessionKey & z.input<typeof RenameSession>,
): Promise<ChangedSession> {
  const key = { tenantId, sessionId };
  const title = titleFrom(repairText(parseInput(RenameSession, input).title));
  if (title === undefined) {
    const message = `must have 1 to ${TITLE_CODE_POINTS_MAX} characters`;
    throw new InvalidRequest(`The input is not valid: title: ${message}.`, { issues: [{ path: 'title', message }] });
  }
  const session = await requireLockedSession(tx, key);
  const changed = session.title !== title;
  if (changed) await writeTitle(tx, key, title);
  return { session: await getSession(tx, key), changed };
}
