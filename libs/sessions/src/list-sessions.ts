import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  InvalidRequest,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  SESSION_SCAN_ROWS_MAX,
  type SessionList,
  type SessionListState,
  type SessionSummary,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { countChangedSince, listChangedPage, listSessionsPage, type SessionFilter, type SessionPlace } from './session-list.sql';

const sessionCursor = defineCursor('sessions', z.strictObject({ lastActivityAt: cursorTime, sessionId: identifier }));

/** Up to so many changed sessions are sorted for a page of unread ones; beyond, the list is read in its own order. */
const CHANGED_FEW_MAX = 1_000;

export interface ListSessions {
  readonly tenantId: string;
  /** `default` when absent; `unread` needs a reader. */
  readonly state?: SessionListState | undefined;
  readonly projectId?: string | undefined;
  readonly backendProfile?: string | undefined;
  readonly readerId?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
  /** How many sessions one call looks at; for tests. */
  readonly scanRows?: number | undefined;
}

/**
 * One page of a tenant's sessions, the last active first, with unread marks where a reader is named.
 *
 * Returns   `cursor: null` at the end; a page may be short, or empty, and have a cursor: a call looks at 10,000 sessions at most. The order
 *           moves with activity: each page lies behind the last one, so a session that becomes active while somebody pages goes to the front
 *           and may be missing from later pages, one that does not never is.
 * Errors    InvalidCursor, InvalidRequest (`unread` without a reader).
 * Repeat    safe; reads only, no lock.   Source: the original's listSessions, which filtered the first 500 in memory.
 */
export async function listSessions(at: At, request: ListSessions): Promise<SessionList> {
  const { tenantId, state = 'default', projectId, backendProfile, readerId, cursor, limit = LIST_ROWS_DEFAULT } = request;
  const filter: SessionFilter = { tenantId, state, projectId, backendProfile, readerId };
  const filterHash = contentHash({
    tenantId,
    state,
    projectId: projectId ?? null,
    backendProfile: backendProfile ?? null,
    readerId: readerId ?? null,
  }).hash;
  const after = cursor === undefined ? undefined : sessionCursor.decode(cursor, filterHash);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const page = await readPage(at, filter, { after, rowsMax, scanRows: request.scanRows ?? SESSION_SCAN_ROWS_MAX });
  return { sessions: page.sessions, cursor: page.next === undefined ? null : sessionCursor.encode({ ...page.next }, filterHash) };
}

interface Page {
  readonly sessions: SessionSummary[];
  readonly next: SessionPlace | undefined;
}

async function readPage(
  at: At,
  filter: SessionFilter,
  { after, rowsMax, scanRows }: { after: SessionPlace | undefined; rowsMax: number; scanRows: number },
): Promise<Page> {
  const on = executorOf(at);
  const range = { after, limit: rowsMax + 1, scanRows };
  if (filter.state !== 'unread') return cut(await listSessionsPage(on, filter, range), rowsMax);
  const { readerId, tenantId } = filter;
  if (readerId === undefined) {
    const message = 'the state unread needs a reader';
    throw new InvalidRequest(`The input is not valid: readerId: ${message}.`, { issues: [{ path: 'readerId', message }] });
  }
  const fewMax = Math.min(CHANGED_FEW_MAX, scanRows - 1);
  const areFew = (await countChangedSince(on, { tenantId, readerId, max: fewMax + 1 })) <= fewMax;
  if (!areFew) return cut(await listSessionsPage(on, filter, range), rowsMax);
  return cut({ sessions: await listChangedPage(on, { ...filter, readerId }, range), scannedTo: undefined }, rowsMax);
}

/** The page was read with one session more than it may show: it tells that there are more. */
function cut({ sessions, scannedTo }: { sessions: SessionSummary[]; scannedTo: SessionPlace | undefined }, rowsMax: number): Page {
  if (sessions.length <= rowsMax) return { sessions, next: scannedTo };
  const shown = sessions.slice(0, rowsMax);
  const last = shown.at(-1);
  return { sessions: shown, next: last && { lastActivityAt: last.lastActivityAt, sessionId: last.sessionId } };
}
