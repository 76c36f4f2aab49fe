import {
  cutText,
  partitionOf,
  SessionBoundary,
  SessionNotFound,
  TITLE_CODE_POINTS_MAX,
  type JsonObject,
  type Session,
  type SessionRef,
} from '@runplane/contracts';
import { executorOf, type At, type Tx } from '@runplane/database';
import { findSession, insertSession, type SessionKey, type SessionRow } from './session.sql';

/** Reads a session's control record. Errors: SessionNotFound. */
export async function getSession(at: At, key: SessionKey): Promise<Session> {
  const row = await findSession(executorOf(at), key);
  if (row === undefined) throw new SessionNotFound(`There is no session ${key.sessionId}.`, { sessionId: key.sessionId });
  return toSession(row);
}

function toSession({ lastTx: _, ...session }: SessionRow): Session {
  return session;
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
  if (known !== undefined) return known;
  await insertSession(tx, {
    tenantId,
    sessionId: ref.sessionId,
    ...boundary,
    ...partitionOf(tenantId, ref.sessionId),
    conversationId: ref.conversationId ?? null,
    threadId: ref.threadId ?? null,
    metadata: ref.metadata ?? {},
    title: titleOfMetadata(ref.metadata),
    expiresAt: ref.expiresAt == null ? null : new Date(ref.expiresAt).toISOString(), // PostgreSQL takes fewer offsets, and rounds
    ttlSeconds: ref.ttlSeconds ?? null,
  });
  const made = await findSession(tx, key);
  if (made === undefined) throw new Error(`session ${ref.sessionId} is neither new nor there`);
  return made;
}

/** Errors: SessionBoundary when the session belongs to another project or backend profile. */
export function assertBoundary(session: SessionRow, boundary: Boundary): void {
  for (const field of ['projectId', 'backendProfile'] as const) {
    if (session[field] === boundary[field]) continue;
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

/** A session is called after its first turn's first line, unless its metadata names it; later turns never rename it. */
export function titleOfTurn(payload: JsonObject): string | null {
  const text = payload['text'];
  if (typeof text !== 'string') return null;
  const line = text.split(/\r?\n/u).find((candidate) => candidate.trim() !== '');
  return line === undefined ? null : cutText(line.trim(), TITLE_CODE_POINTS_MAX);
}

function titleOfMetadata(metadata: JsonObject | undefined): string | null {
  const title = metadata?.['title'];
  return typeof title === 'string' && title.trim() !== '' ? cutText(title.trim(), TITLE_CODE_POINTS_MAX) : null;
}
