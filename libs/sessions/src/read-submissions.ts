import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  type Submission,
  type SubmissionCounts,
  type SubmissionList,
  type SubmissionReceipt,
} from '@runplane/contracts';
import { executorOf, type At, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { submissionNotFound } from './projections/submission';
import { requireOpenHead } from './require-head';
import {
  findSubmission,
  listUnfinishedOfSession,
  listUnfinishedOfTenant,
  type SubmissionPage,
  type SubmissionRow,
} from './submission-rows.sql';
import type { SessionKey } from './session.sql';
import { toReceipt, toSubmission } from './submission-shapes';

export interface SubmissionKey extends SessionKey {
  readonly operationId: string;
}

/** A submission with its state, claim, attempts and last error. Errors: SubmissionNotFound, SessionNotFound, SessionDeleted. */
export async function getSubmission(at: At, key: SubmissionKey): Promise<Submission> {
  return toSubmission(await requireSubmission(executorOf(at), key));
}

/** The receipt of an operation once more, as a duplicate's. Errors: SubmissionNotFound, SessionNotFound, SessionDeleted. */
export async function getSubmissionReceipt(at: At, key: SubmissionKey): Promise<SubmissionReceipt> {
  return toReceipt(await requireSubmission(executorOf(at), key), 'duplicate');
}

async function requireSubmission(on: SqlExecutor, { operationId, ...key }: SubmissionKey): Promise<SubmissionRow> {
  const found = await findSubmission(on, key, operationId);
  if (found !== undefined) return found;
  await requireOpenHead(on, key);
  throw submissionNotFound(key.sessionId, operationId);
}

/** How many submissions of a session are unfinished. Errors: SessionNotFound, SessionDeleted. */
export async function countUnfinishedSubmissions(at: At, key: SessionKey): Promise<SubmissionCounts> {
  const { openSubmissions, openTurnSubmissions } = await requireOpenHead(executorOf(at), key);
  return { unfinished: openSubmissions, turns: openTurnSubmissions };
}

const sessionCursor = defineCursor('submissions', z.strictObject({ place: z.int() }));
const tenantCursor = defineCursor(
  'tenant-submissions',
  z.strictObject({ createdAt: cursorTime, sessionId: identifier, operationId: identifier }),
);

export interface ListUnfinishedSubmissions {
  readonly tenantId: string;
  /** Without one, of all sessions of the tenant. */
  readonly sessionId?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

/**
 * Unfinished submissions, claimed ones among them: of a session in their order, of a tenant the longest accepted first.
 *
 * Returns   a page; `cursor: null` at the end. One whose payloads are large is short.
 * Errors    SessionNotFound, SessionDeleted, InvalidCursor.   Repeat: safe; reads only.   Source: the original's pending, which had no limit.
 */
export async function listUnfinishedSubmissions(at: At, request: ListUnfinishedSubmissions): Promise<SubmissionList> {
  const { tenantId, sessionId, cursor, limit = LIST_ROWS_DEFAULT } = request;
  const on = executorOf(at);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  if (sessionId === undefined) {
    const filterHash = contentHash({ tenantId }).hash;
    const after = cursor === undefined ? undefined : tenantCursor.decode(cursor, filterHash);
    return pageOf(await listUnfinishedOfTenant(on, tenantId, { after, limit: rowsMax }), (last) =>
      tenantCursor.encode({ createdAt: last.createdAt, sessionId: last.sessionId, operationId: last.operationId }, filterHash),
    );
  }
  const key = { tenantId, sessionId };
  const { incarnation } = await requireOpenHead(on, key);
  const filterHash = contentHash({ ...key, incarnation }).hash;
  const after = cursor === undefined ? undefined : sessionCursor.decode(cursor, filterHash);
  const page = await listUnfinishedOfSession(on, key, { after, limit: rowsMax });
  return pageOf(page, ({ place }) => sessionCursor.encode({ place }, filterHash));
}

function pageOf({ rows, more }: SubmissionPage, cursorAt: (last: SubmissionRow) => string): SubmissionList {
  const last = rows.at(-1);
  return { submissions: rows.map(toSubmission), cursor: more && last !== undefined ? cursorAt(last) : null };
}
