import {
  contentHash,
  CreateSession,
  normalizeJson,
  parseInput,
  partitionOf,
  SESSION_HEADER_BYTES_MAX,
  SessionExists,
  type CreatedSession,
  type SessionHeader,
  type SessionLog,
} from '@runplane/contracts';
import { executorOf, requireTenant, type At, type SqlExecutor, type Tx } from '@runplane/database';
import { assertOpen } from './judge-append';
import { idInUse, sessionNotFound, wentAway } from './session';
import { readHead, type HeadRow } from './session-head.sql';
import { insertSession, type SessionKey } from './session.sql';

/**
 * Makes a session with an empty log.
 *
 * Input     header: `id`, optionally parent_session_id, projectId and backendProfile (else the first run brings them); up to 64 KiB.
 * Returns   the log; `replayed` where the session was there with the same header.
 * Locks     new key (session).   Writes: sessions, session_heads.
 * Errors    SessionExists (another header, also one that a first run has made; a copy that is not done), SessionDeleted, TenantNotFound, InvalidRequest, InvalidJson,
 *           PayloadTooLarge; TransactionConflict (what was there has just been erased).
 * Repeat    safe.   Keeps: TEN-1, IDEM-1.   Source: the original's create, which refused every repeat.
 */
export async function createSession(tx: Tx, { tenantId, ...input }: { tenantId: string } & CreateSession): Promise<CreatedSession> {
  const header = normalizeJson(parseInput(CreateSession, input).header, { bytesMax: SESSION_HEADER_BYTES_MAX }).value as SessionHeader;
  const key = { tenantId, sessionId: header.id };
  await requireTenant(tx, tenantId);
  const created = await insertSession(tx, {
    ...key,
    ...partitionOf(tenantId, header.id),
    header,
    projectId: textOf(header['projectId']),
    backendProfile: textOf(header['backendProfile']),
    conversationId: null,
    threadId: null,
    metadata: {},
    title: null,
    expiresAt: null,
    ttlSeconds: null,
  });
  const found = await readHead(tx, key);
  if (found === undefined) throw wentAway(header.id);
  const { head } = found;
  if (head.copying) throw idInUse(header.id);
  assertOpen(head);
  if (!created && contentHash(head.header).hash !== contentHash(header).hash) {
    throw new SessionExists(`Session ${header.id} is there with another header.`, { sessionId: header.id });
  }
  return { log: toSessionLog(head), replayed: !created };
}

/** Header and place of a session's log. Errors: SessionNotFound, SessionDeleted. */
export async function getSessionLog(at: At, key: SessionKey): Promise<SessionLog> {
  const head = await requireHead(executorOf(at), key);
  assertOpen(head);
  return toSessionLog(head);
}

/** Errors: SessionNotFound. */
export async function requireHead(on: SqlExecutor, key: SessionKey): Promise<HeadRow> {
  const found = await readHead(on, key);
  if (found === undefined) throw sessionNotFound(key.sessionId);
  return found.head;
}

const textOf = (value: unknown): string | null => (typeof value === 'string' ? value : null);

export const toSessionLog = ({
  sessionId,
  incarnation,
  header,
  lastSequence,
  createdAt,
  updatedAt,
}: Pick<HeadRow, 'sessionId' | 'incarnation' | 'header' | 'lastSequence' | 'createdAt' | 'updatedAt'>): SessionLog => ({
  sessionId,
  incarnation,
  header,
  lastSequence,
  createdAt,
  updatedAt,
});
