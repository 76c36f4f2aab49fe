import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  SessionNotFound,
  type CancelRequest,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { findSession, type SessionKey } from '@runplane/sessions';
import { z } from 'zod';
import { listCancelRequestsOfSession } from './cancel-request.sql';

const cancelRequestCursor = defineCursor('cancel-requests', z.strictObject({ createdAt: cursorTime, id: identifier }));

/** Everybody who asked to stop something in a session, newest first, by page. Errors: SessionNotFound, InvalidCursor. */
export async function listSessionCancelRequests(
  at: At,
  { tenantId, sessionId, cursor, limit = LIST_ROWS_DEFAULT }: SessionKey & { cursor?: string | undefined; limit?: number | undefined },
): Promise<{ requests: CancelRequest[]; cursor: string | null }> {
  const on = executorOf(at);
  if ((await findSession(on, { tenantId, sessionId })) === undefined)
    throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  const filterHash = contentHash({ tenantId, sessionId }).hash;
  const after = cursor === undefined ? undefined : cancelRequestCursor.decode(cursor, filterHash);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const found = await listCancelRequestsOfSession(on, { tenantId, sessionId }, { after, limit: rowsMax + 1 });
  const requests = found.slice(0, rowsMax);
  const last = requests.at(-1);
  const isMore = found.length > rowsMax && last !== undefined;
  return { requests, cursor: isMore ? cancelRequestCursor.encode({ createdAt: last.createdAt, id: last.id }, filterHash) : null };
}
