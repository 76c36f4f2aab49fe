import type { SessionChanges } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { defineChangeList, type ChangesAfter } from '@runplane/outbox';
import { listChangesPage } from './session-list.sql';

const listChanges = defineChangeList('session-changes', 'sessionId');

export interface ListSessionChanges extends ChangesAfter {
  readonly tenantId: string;
  readonly readerId?: string | undefined;
}

/**
 * A tenant's sessions in the order of their changes, each once, as it is now: a reader that follows `cursor` sees the last version of every
 * session that changes, whatever transactions overlap or roll back (change-list.ts of libs/outbox).
 *
 * Returns   `cursor` to go on from, also when the page is empty; `more`: read on at once.
 * Errors    InvalidCursor; CursorExpired (another store, or a copy that was not rebased).
 * Repeat    safe; reads only, one statement, no lock.   Source: the original's `version > cursor`, which missed late commits.
 */
export async function listSessionChanges(at: At, { tenantId, readerId, ...after }: ListSessionChanges): Promise<SessionChanges> {
  const on = executorOf(at);
  const { rows: sessions, cursor, more } = await listChanges(after, (wanted) => listChangesPage(on, { tenantId, readerId, ...wanted }));
  return { sessions, cursor, more };
}
