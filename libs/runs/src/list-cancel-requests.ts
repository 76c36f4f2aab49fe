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
import type { SessionKey } from '@runplane/sessions';
import { z } from 'zod';
import { listCancelRequestsOfRun, listCancelRequestsOfSession, type CancelRequestPlace } from './cancel-request.sql';
import { absentRun } from './require';
import type { RunKey } from './run.sql';

const cancelRequestCursor = defineCursor('cancel-requests', z.strictObject({ createdAt: cursorTime, id: identifier }));

interface Page {
  cursor?: string | undefined;
  limit?: number | undefined;
}
interface Requests {
  requests: CancelRequest[];
  cursor: string | null;
}

/** Everybody who asked to stop something in a session, newest first, by page. Errors: SessionNotFound, InvalidCursor. */
export async function listSessionCancelRequests(at: At, { tenantId, sessionId, ...page }: SessionKey & Page): Promise<Requests> {
  const requests = await pageOf({ tenantId, sessionId }, page, (bounds) =>
    listCancelRequestsOfSession(executorOf(at), { tenantId, sessionId }, bounds),
  );
  if (requests === undefined) throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  return requests;
}

/** Everybody who asked to cancel a run or a command of it, oldest first, by page. Errors: RunNotFound, RunDeleted, InvalidCursor. */
export async function listCancelRequests(at: At, { tenantId, runId, ...page }: RunKey & Page): Promise<Requests> {
  const on = executorOf(at);
  const requests = await pageOf({ tenantId, runId }, page, (bounds) => listCancelRequestsOfRun(on, { tenantId, runId }, bounds));
  if (requests === undefined) throw await absentRun(on, { tenantId, runId });
  return requests;
}

type Read = (bounds: { after: CancelRequestPlace | undefined; limit: number }) => Promise<CancelRequest[] | undefined>;

/** `of`: what the list is of, to which its cursor is bound. */
async function pageOf(of: SessionKey | RunKey, { cursor, limit = LIST_ROWS_DEFAULT }: Page, read: Read): Promise<Requests | undefined> {
  const filterHash = contentHash({ ...of }).hash;
  const after = cursor === undefined ? undefined : cancelRequestCursor.decode(cursor, filterHash);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const found = await read({ after, limit: rowsMax + 1 });
  if (found === undefined) return undefined;
  const requests = found.slice(0, rowsMax);
  const last = requests.at(-1);
  const isMore = found.length > rowsMax && last !== undefined;
  return { requests, cursor: isMore ? cancelRequestCursor.encode({ createdAt: last.createdAt, id: last.id }, filterHash) : null };
}
