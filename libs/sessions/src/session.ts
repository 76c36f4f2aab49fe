import {
  partitionOf,
  SessionBoundary,
  SessionDeleted,
  SessionExists,
  SessionNotFound,
  TransactionConflict,
  type JsonObject,
  type Session,
  type SessionRef,
} from '@runplane/contracts';
import { executorOf, type At, type SqlExecutor, type Tx } from '@runplane/database';
import { findSession, insertSession, lockSession, writeBoundary, type SessionKey, type SessionRow } from './session.sql';
import { isoTime, titleOfMetadata } from './session-title';

export const sessionNotFound = (sessionId: string): SessionNotFound =>
  new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });

/** Reads a session's control record. Errors: SessionNotFound, SessionDeleted. */
export async function getSession(at: At, key: SessionKey, which: WhichSession = {}): Promise<Session> {
  return toSession(await requireSession(executorOf(at), key, which));
}

export interface WhichSession {
  /** For what is left to do for a session that nobody sees any more. */
  readonly evenIfDeleted?: boolean | undefined;
}

/** Reads a session without a lock. Errors: SessionNotFound, SessionDeleted. */
export async function requireSession(on: SqlExecutor, key: SessionKey, which: WhichSession = {}): Promise<SessionRow> {
  return assertThere(key, await findSession(on, key), which);
}

/** Locks a session. Errors: SessionNotFound, SessionDeleted. */
export async function requireLockedSession(tx: Tx, key: SessionKey, which: WhichSession = {}): Promise<SessionRow> {
  return assertThere(key, await lockSession(tx, key), which);
}

/** Errors: SessionNotFound, also while the session is being copied; SessionDeleted. */
export function assertThere(
  { sessionId }: SessionKey,
  session: SessionRow | undefined,
  { evenIfDeleted = false }: WhichSession = {},
): SessionRow {
  if (session === undefined || session.copying) throw sessionNotFound(sessionId);
  if (session.deletedAt !== null && !evenIfDeleted) throw sessionDeleted(sessionId, session.deletedAt);
  return session;
}

export const sessionDeleted = (sessionId: string, deletedAt: string): SessionDeleted =>
  new SessionDeleted(`Session ${sessionId} was deleted at ${deletedAt}.`, { sessionId, deletedAt });

/** Of an id that no session can be made with; also while a log is being copied into it. */
export const idInUse = (sessionId: string): SessionExists => new SessionExists(`The session id ${sessionId} is in use.`, { sessionId });

/** Of an id that was in use when it was to be inserted, and is not any more: a copy has failed, or an erasure has come to its end. */
export const wentAway = (sessionId: string): TransactionConflict =>
  new TransactionConflict(`Session ${sessionId} was erased at this moment: repeat the call.`, { attempts: 1 });

/** A session as the wire shows it. */
function toSession(row: SessionRow): Session {
  return {
    sessionId: row.sessionId,
    tenantId: row.tenantId,
    projectId: row.projectId,
    backendProfile: row.backendProfile,
    conversationId: row.conversationId,
    threadId: row.threadId,
    metadata: row.metadata,
    title: row.title,
    executionState: row.executionState,
    activeRunId: row.activeRunId,
    activeCommandId: row.activeCommandId,
    lastRunId: row.lastRunId,
    lastCommandId: row.lastCommandId,
    terminalStatus: row.terminalStatus,
    failureKind: row.failureKind,
    version: row.version,
    summary: row.summary,
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
    lastActivityAt: row.lastActivityAt,
    expiresAt: row.expiresAt,
    ttlSeconds: row.ttlSeconds,
    storage: {
      kind: row.storageKind,
      name: row.storageName,
      namespace: row.storageNamespace,
      phase: row.storagePhase,
      sizeBytes: row.storageSizeBytes,
      filesCount: row.storageFilesCount,
      sha256: row.storageSha256,
      rolloutSubdir: row.rolloutSubdir,
      updatedAt: row.storageUpdatedAt,
      evictedAt: row.storageEvictedAt,
      version: row.storageVersion,
      evictionAttempts: row.storageAttempts,
      evictionError: row.storageLastError,
    },
  };
}

/** Who a session belongs to: fixed by its first run or its creation, the same for every later run. */
export interface Boundary {
  readonly projectId: string;
  readonly backendProfile: string;
}

/**
 * Makes the session that a run names, unless it is there. Comes before any row lock of the transaction (rank newKey): a twin that makes
 * the same session at the same time is waited for, and one of both finds it made. Returns the session as read, not locked.
 */
export async function ensureSession(tx: Tx, tenantId: string, ref: SessionRef, boundary: Boundary): Promise<SessionRow> {
  const key = { tenantId, sessionId: ref.sessionId };
  const known = await findSession(tx, key);
  if (known !== undefined) return assertThere(key, known);
  await insertSession(tx, {
    tenantId,
    sessionId: ref.sessionId,
    ...boundary,
    ...partitionOf(tenantId, ref.sessionId),
    conversationId: ref.conversationId ?? null,
    threadId: ref.threadId ?? null,
    metadata: ref.metadata ?? {},
    title: titleOfMetadata(ref.metadata),
    expiresAt: isoTime(ref.expiresAt),
    ttlSeconds: ref.ttlSeconds ?? null,
  });
  const made = await findSession(tx, key);
  if (made === undefined) throw wentAway(ref.sessionId);
  return assertThere(key, made);
}

/**
 * The same of a locked session, which takes what it lacks from this run: the first one that names it decides. True where it did.
 * Errors: SessionBoundary.
 */
export async function adoptBoundary(tx: Tx, session: SessionRow, { projectId, backendProfile }: Boundary): Promise<boolean> {
  assertBoundary(session, { projectId, backendProfile });
  if (session.projectId !== null && session.backendProfile !== null) return false;
  await writeBoundary(tx, { tenantId: session.tenantId, sessionId: session.sessionId, projectId, backendProfile });
  return true;
}

/** Errors: SessionBoundary when the session belongs to another project or backend profile; one without any belongs to nobody yet. */
export function assertBoundary(session: Pick<SessionRow, 'sessionId' | keyof Boundary>, boundary: Boundary): void {
  for (const field of ['projectId', 'backendProfile'] as const) {
    if (session[field] === null || session[field] === boundary[field]) continue;
    throw new SessionBoundary(`Session ${session.sessionId} belongs to another ${field}: use it as it was made, or another session.`, {
      sessionId: session.sessionId,
      field,
    });
  }
}

/** The reference that a run keeps: the session's own ids win, the caller's metadata is kept. */
export function resolveSessionRef(session: SessionRow, ref: SessionRef): JsonObject {
  return {
    sessionId: session.sessionId,
    conversationId: session.conversationId ?? ref.conversationId ?? null,
    threadId: session.threadId ?? ref.threadId ?? null,
    metadata: { ...session.metadata, ...ref.metadata },
  };
}
