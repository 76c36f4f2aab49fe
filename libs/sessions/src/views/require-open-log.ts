import type { SqlExecutor } from '@runplane/database';
import { requireHead } from '../create-session';
import { assertOpen } from '../judge-append';
import type { HeadRow } from '../session-head.sql';
import type { SessionKey } from '../session.sql';

/** The head of a log whose views may be read. Errors: SessionNotFound, SessionDeleted. */
export async function requireOpenLog(on: SqlExecutor, key: SessionKey): Promise<HeadRow> {
  const head = await requireHead(on, key);
  assertOpen(head);
  return head;
}
