import {
  ApprovalNotFound,
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  InputRequestNotFound,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  requireApproved,
  type Approval,
  type ApprovalList,
  type InputRequest,
  type InputRequestList,
  type JsonValue,
} from '@runplane/contracts';
import { executorOf, waitFor, type At, type Db, type SqlExecutor, type Wait } from '@runplane/database';
import { z } from 'zod';
import {
  findApproval,
  findInputRequest,
  listPendingApprovalsPage,
  listPendingInputsPage,
  type ApprovalKey,
  type InputRequestKey,
  type PendingPage,
} from './requests.sql';
import { approvalStream, inputStream } from './projections/requests';
import { cutPage } from './page.sql';
import { assertOpen } from './judge-append';
import { requireOpenHead } from './require-head';
import { readHead } from './session-head.sql';
import type { SessionKey } from './session.sql';

/** Errors: ApprovalNotFound, SessionDeleted. */
export async function getApproval(at: At, key: ApprovalKey): Promise<Approval> {
  const approval = await findApproval(executorOf(at), key);
  if (approval !== undefined) return approval;
  await assertNotDeleted(executorOf(at), key);
  const { sessionId, approvalId } = key;
  throw new ApprovalNotFound(`Session ${sessionId} has no approval ${approvalId}.`, { sessionId, approvalId });
}

/** Errors: InputRequestNotFound, SessionDeleted. */
export async function getInputRequest(at: At, key: InputRequestKey): Promise<InputRequest> {
  const request = await findInputRequest(executorOf(at), key);
  if (request !== undefined) return request;
  await assertNotDeleted(executorOf(at), key);
  const { sessionId, requestId } = key;
  throw new InputRequestNotFound(`Session ${sessionId} has no input request ${requestId}.`, { sessionId, requestId });
}

/**
 * An approval, once it is resolved or after `waitMs`. A wait that ends without a decision writes nothing and decides nothing: only the
 * approval's own time does. Holds no connection while it waits. Errors: ApprovalNotFound, SessionDeleted.
 */
export function waitForApproval(db: Db, { tenantId, sessionId, approvalId, ...wait }: ApprovalKey & Wait): Promise<Approval> {
  const key = { tenantId, sessionId, approvalId };
  return waitFor(db, approvalStream(key), wait, async () => {
    const value = await getApproval(db, key);
    return { value, done: value.outcome !== 'pending' };
  });
}

/** The same for a request for input. Errors: InputRequestNotFound, SessionDeleted. */
export function waitForInput(db: Db, { tenantId, sessionId, requestId, ...wait }: InputRequestKey & Wait): Promise<InputRequest> {
  const key = { tenantId, sessionId, requestId };
  return waitFor(db, inputStream(key), wait, async () => {
    const value = await getInputRequest(db, key);
    return { value, done: value.status !== 'pending' };
  });
}

/**
 * Returns the approval when it allows a call with exactly these arguments: to be asked right before the call. A resolution is final, so
 * that no lock is needed.
 * Errors: ApprovalNotFound, NotApproved, ApprovalMismatch (other arguments: a changed call needs an approval of its own), InvalidJson.
 */
export async function assertApproved(at: At, { arguments: args, ...key }: ApprovalKey & { arguments: JsonValue }): Promise<Approval> {
  const approval = await getApproval(at, key);
  requireApproved(approval, args);
  return approval;
}

export interface ListPending {
  readonly tenantId: string;
  /** Absent: of every session of the tenant. */
  readonly sessionId?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

/** Approvals that can still be decided, the oldest first, by page; one with large summaries is short. Errors: SessionNotFound, SessionDeleted, InvalidCursor. */
export async function listPendingApprovals(at: At, list: ListPending): Promise<ApprovalList> {
  const { rows, cursor } = await pageOf(at, 'pending-approvals', list, listPendingApprovalsPage, ({ approvalId }) => approvalId);
  return { approvals: rows, cursor };
}

/** Requests for input that can still be answered, the oldest first, by page; one with large prompts is short. Errors: SessionNotFound, SessionDeleted, InvalidCursor. */
export async function listPendingInputs(at: At, list: ListPending): Promise<InputRequestList> {
  const { rows, cursor } = await pageOf(at, 'pending-inputs', list, listPendingInputsPage, ({ requestId }) => requestId);
  return { requests: rows, cursor };
}

const Place = z.strictObject({ createdAt: cursorTime, sessionId: identifier, id: identifier });

async function pageOf<Row extends { createdAt: string; sessionId: string; found: number }>(
  at: At,
  kind: string,
  { tenantId, sessionId, cursor, limit = LIST_ROWS_DEFAULT }: ListPending,
  read: (on: SqlExecutor, page: PendingPage) => Promise<Row[]>,
  idOf: (row: Row) => string,
): Promise<{ rows: Omit<Row, 'found'>[]; cursor: string | null }> {
  const on = executorOf(at);
  const incarnation = sessionId === undefined ? null : (await requireOpenHead(on, { tenantId, sessionId })).incarnation;
  const places = defineCursor(kind, Place);
  const filterHash = contentHash({ tenantId, sessionId: sessionId ?? null, incarnation }).hash;
  const after = cursor === undefined ? undefined : places.decode(cursor, filterHash);
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const { shown, last } = cutPage(await read(on, { tenantId, sessionId, after, limit: rowsMax + 1 }), rowsMax);
  const place = last && { createdAt: last.createdAt, sessionId: last.sessionId, id: idOf(last) };
  return { rows: shown, cursor: place === undefined ? null : places.encode(place, filterHash) };
}

/** What is not found in a session that was deleted is gone. Errors: SessionDeleted; SessionNotFound while it is being copied. */
async function assertNotDeleted(on: SqlExecutor, key: SessionKey): Promise<void> {
  const found = await readHead(on, key);
  if (found !== undefined) assertOpen(found.head);
}
