import {
  normalizeJson,
  parseInput,
  partitionOf,
  REFERENCE_BYTES_MAX,
  requireIdentifier,
  SESSION_SUMMARY_BYTES_MAX,
  UpsertSession,
  type UpsertedSession,
} from '@runplane/contracts';
import { requireTenant, type Tx } from '@runplane/database';
import { adoptBoundary, assertThere, getSession, idInUse, wentAway } from './session';
import { decideUpsert } from './session-decisions';
import { insertSession, lockSession, writeSession, type SessionKey } from './session.sql';
import { isoTime, titleOfMetadata } from './session-title';

/**
 * Makes a session, or changes what its owner says of it.
 *
 * Input     session: see UpsertSession; project and backend profile are the boundary and never change. What is left out stays, null clears.
 * Returns   the session; `created`; `changed: false` when it said all of this already.
 * Locks     new key (session) → session.   Writes: sessions.
 * Errors    SessionBoundary, SessionDeleted, SessionExists (a copy that is not done), TenantNotFound, InvalidRequest, InvalidJson, PayloadTooLarge,
 *           InvalidIdentifier; TransactionConflict (what was there has just been erased).
 * Repeat    safe: the same call changes nothing; of concurrent twins one makes the session, the other finds it made.
 * Keeps     TEN-1, IDEM-1.   Source: the original's upsertSession, which had no boundary check.
 */
export async function upsertSession(
  tx: Tx,
  { tenantId, sessionId, session: input }: SessionKey & { session: UpsertSession },
): Promise<UpsertedSession> {
  const key = { tenantId, sessionId: requireIdentifier(sessionId, 'the session id') };
  const wanted = parseSession(input);
  await requireTenant(tx, tenantId);
  const created = await insertSession(tx, {
    ...key,
    ...partitionOf(tenantId, sessionId),
    projectId: wanted.projectId,
    backendProfile: wanted.backendProfile,
    conversationId: wanted.conversationId ?? null,
    threadId: wanted.threadId ?? null,
    metadata: wanted.metadata ?? {},
    title: titleOfMetadata(wanted.metadata),
    expiresAt: isoTime(wanted.expiresAt),
    ttlSeconds: wanted.ttlSeconds ?? null,
    summary: wanted.summary,
    rolloutSubdir: wanted.rolloutSubdir,
  });
  if (created) return { session: await getSession(tx, key), created, changed: true };
  const found = await lockSession(tx, key);
  if (found === undefined) throw wentAway(sessionId);
  if (found.copying) throw idInUse(sessionId);
  const stored = assertThere(key, found);
  const adopted = await adoptBoundary(tx, stored, wanted);
  const decision = decideUpsert(stored, wanted);
  if (decision.kind === 'apply') await writeSession(tx, key, decision.change);
  return { session: await getSession(tx, key), created, changed: adopted || decision.kind === 'apply' };
}

function parseSession(input: UpsertSession): UpsertSession {
  const { metadata, summary, ...parsed } = parseInput(UpsertSession, input);
  return {
    ...parsed,
    ...(metadata === undefined ? {} : { metadata: normalizeJson(metadata, { bytesMax: REFERENCE_BYTES_MAX }).value }),
    ...(summary === undefined ? {} : { summary: normalizeJson(summary, { bytesMax: SESSION_SUMMARY_BYTES_MAX }).value }),
  };
}
