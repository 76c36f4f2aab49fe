import { contentHash, TITLE_CODE_POINTS_MAX, type JsonObject, type UpsertSession } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import type { SessionContent, SessionRow } from './session.sql';
import { isoTime, titleOfMetadata } from './session-title';

// Pure rules of sessions: from a locked row and a call to what is written. No clock, no database.

export type SessionDecision = { kind: 'apply'; change: SessionContent } | { kind: 'keep' };

/**
 * What a call by hand makes of a session that is there. What it leaves out stays; null clears. A fixed end and a time to live replace each
 * other. A title is only given where there is none: a rename is an operation of its own. `keep`: the session says all of it already.
 */
export function decideUpsert(session: SessionRow, wanted: Omit<UpsertSession, 'projectId' | 'backendProfile'>): SessionDecision {
  const change: SessionContent = {
    conversationId: given(wanted.conversationId, session.conversationId),
    threadId: given(wanted.threadId, session.threadId),
    metadata: wanted.metadata ?? session.metadata,
    summary: wanted.summary ?? session.summary,
    title: session.title ?? titleOfMetadata(wanted.metadata),
    rolloutSubdir: wanted.rolloutSubdir ?? session.rolloutSubdir,
    ...decideExpiry(session, wanted),
  };
  return same(session, change) ? { kind: 'keep' } : { kind: 'apply', change };
}

function decideExpiry(
  session: SessionRow,
  { expiresAt, ttlSeconds }: Pick<UpsertSession, 'expiresAt' | 'ttlSeconds'>,
): Pick<SessionContent, 'expiresAt' | 'ttlSeconds' | 'livesFromNow'> {
  if (ttlSeconds != null) {
    const alreadySo = session.ttlSeconds === ttlSeconds && session.expiresAt !== null;
    return { ttlSeconds, expiresAt: session.expiresAt, livesFromNow: !alreadySo };
  }
  if (expiresAt !== undefined) return { ttlSeconds: null, expiresAt: isoTime(expiresAt), livesFromNow: false };
  return { ttlSeconds: given(ttlSeconds, session.ttlSeconds), expiresAt: session.expiresAt, livesFromNow: false };
}

const given = <T>(wanted: T | null | undefined, present: T | null): T | null => (wanted === undefined ? present : wanted);

function same(session: SessionRow, change: SessionContent): boolean {
  const { metadata, summary, livesFromNow, ...columns } = change;
  return (
    !livesFromNow &&
    Object.entries(columns).every(([name, value]) => session[name as keyof typeof columns] === value) &&
    sameJson(session.metadata, metadata) &&
    sameJson(session.summary, summary)
  );
}

const sameJson = (a: JsonObject, b: JsonObject): boolean => a === b || contentHash(a).hash === contentHash(b).hash;

/** One line without surrounding or repeated white space; undefined where that is empty or longer than a title may be. */
export function titleFrom(text: string): string | undefined {
  const title = text.trim().replaceAll(/\s+/gu, ' ');
  const codePoints = Array.from(title).length;
  return codePoints === 0 || codePoints > TITLE_CODE_POINTS_MAX ? undefined : title;
}

type StorageOf = Pick<
  SessionRow,
  'storageKind' | 'storageName' | 'storageVersion' | 'storageLeaseOwner' | 'storageLeaseEpoch' | 'storageLeaseInMs'
>;

/** `keep`: it has been told before. `refuse`: something else is attached by now, and must not be taken for gone. */
export function decideEvicted(session: StorageOf, report: { name: string; storageVersion: number }): 'apply' | 'keep' | 'refuse' {
  if (session.storageName !== report.name) return 'refuse';
  if (session.storageKind === 'evicted') return session.storageVersion === report.storageVersion + 1 ? 'keep' : 'refuse';
  return session.storageVersion === report.storageVersion && session.storageKind !== 'none' ? 'apply' : 'refuse';
}

/** A holder is current by owner and epoch; its lease may have ended, as long as nobody has taken it away. */
export function holdsStorage(session: StorageOf, claim: { owner: string; epoch: number }): boolean {
  return session.storageLeaseOwner === claim.owner && session.storageLeaseEpoch === claim.epoch;
}

/** For how long nothing may use the storage, since a collector is deleting it; undefined: it is free. */
export function storageHeldMs(session: StorageOf): number | undefined {
  const { storageLeaseInMs } = session;
  return storageLeaseInMs !== null && isLive(storageLeaseInMs) ? storageLeaseInMs : undefined;
}
