import type { SqlExecutor, Tx } from '@runplane/database';
import { assertOpen } from './judge-append';
import { sessionNotFound } from './session';
import { lockHead, readHead, type HeadRow } from './session-head.sql';
import type { SessionKey } from './session.sql';

/** The head of a session that is there. Errors: SessionNotFound (also while it is being copied), SessionDeleted. */
export async function requireOpenHead(on: SqlExecutor, key: SessionKey): Promise<HeadRow> {
  const found = await readHead(on, key);
  if (found === undefined) throw sessionNotFound(key.sessionId);
  assertOpen(found.head);
  return found.head;
}

/** The same, locked. */
export async function requireLockedHead(tx: Tx, key: SessionKey): Promise<HeadRow> {
  const head = await lockHead(tx, key);
  if (head === undefined) throw sessionNotFound(key.sessionId);
  assertOpen(head);
  return head;
}
