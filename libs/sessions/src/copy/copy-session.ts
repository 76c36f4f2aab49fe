import { setTimeout as sleep } from 'node:timers/promises';
import {
  COPY_OPEN_MAX,
  isDomainError,
  newId,
  partitionOf,
  TransactionConflict,
  type CopiedSession,
  type DomainError,
  type JsonObject,
  type NewSessionEvent,
} from '@runplane/contracts';
import { inTransaction, requireTenant, type Db, type Tx } from '@runplane/database';
import { appendAsServer } from '../append-as-server';
import { closeOpenInSession } from '../close-session';
import { hasMoreOpen } from '../deletion.sql';
import { eraseSessionRows } from '../erase-session';
import { rebuildSession } from '../rebuild/rebuild-session';
import { idInUse } from '../session';
import { lockHead, readHead } from '../session-head.sql';
import { insertSession, lockSession, type SessionKey } from '../session.sql';
import { insertCopied, writeCopied, type CopiedEvent } from './copy.sql';

// How a log comes into a session of its own: by a fork, or from a file. The id is taken at once, by a session that is marked as deleted and as being
// copied, so that nobody sees it; events come in batches with a transaction each, without outbox rows: they are facts that have been told. Then the
// views are built as a rebuild builds them, what is open is closed by events, and the session is shown, in one last transaction. Whatever fails before
// leaves nothing that anybody could see; what it leaves is erased, by itself or, when the process has died, by the background.

export interface Copy extends SessionKey {
  readonly header: JsonObject;
  readonly projectId: string | null;
  readonly backendProfile: string | null;
  /** What the ends of what was open say. */
  readonly reason: string;
  /** The first event of the copy's own, if any. */
  readonly marker?: NewSessionEvent | undefined;
  /** The refusal of a log that leaves more than COPY_OPEN_MAX open behind its last event. */
  readonly tooMuchOpen: (lastSequence: number) => DomainError;
  readonly signal?: AbortSignal | undefined;
}

/** What the events need to know of the session that they are going into. */
export interface CopyTarget {
  readonly incarnation: string;
  readonly storeId: string;
}

/** `batches`: the events in order from 0, each batch for one transaction. Errors: SessionExists; whatever the batches throw. */
export async function copySession(
  db: Db,
  copy: Copy,
  batches: (target: CopyTarget) => AsyncIterable<readonly CopiedEvent[]>,
): Promise<CopiedSession> {
  const key = { tenantId: copy.tenantId, sessionId: copy.sessionId };
  const target = await inTransaction(db, (tx) => beginCopy(tx, copy));
  try {
    let copiedThrough = -1;
    for await (const events of batches(target)) {
      copy.signal?.throwIfAborted();
      if (events.length === 0) continue;
      if (!(await inTransaction(db, (tx) => insertCopied(tx, key, target.incarnation, events)))) throw givenUp(key);
      copiedThrough = events.at(-1)?.sequence ?? copiedThrough;
    }
    if (copiedThrough >= 0) await buildViews(db, key, copy.signal);
    if (await hasMoreOpen(db.sql, key, COPY_OPEN_MAX)) throw copy.tooMuchOpen(copiedThrough);
    return {
      sessionId: copy.sessionId,
      copiedThrough,
      ...(await inTransaction(db, (tx) => finishCopy(tx, copy, target), { timeoutMs: 60_000 })),
    };
  } catch (error) {
    await eraseSessionRows({ db, incarnation: target.incarnation }, key).catch((again: unknown) => {
      db.options.onError(again instanceof Error ? again : new Error(String(again)), 'the erasure of a copy that failed'); // the background does it later
    });
    throw error;
  }
}

async function beginCopy(tx: Tx, { tenantId, sessionId, header, projectId, backendProfile }: Copy): Promise<CopyTarget> {
  await requireTenant(tx, tenantId);
  const made = await insertSession(tx, {
    tenantId,
    sessionId,
    ...partitionOf(tenantId, sessionId),
    header,
    projectId,
    backendProfile,
    conversationId: null,
    threadId: null,
    metadata: {},
    title: null,
    expiresAt: null,
    ttlSeconds: null,
    copying: true,
  });
  if (!made) throw idInUse(sessionId);
  const found = await readHead(tx, { tenantId, sessionId });
  if (found === undefined) throw new Error(`session ${sessionId} has no head`);
  return { incarnation: found.head.incarnation, storeId: found.head.storeId };
}

const REBUILD_WAIT_MS = 100;
const REBUILD_WAITS_MAX = 600;

/** The background may have taken the rebuild up before us: then it is waited for, and done once more. */
async function buildViews(db: Db, key: SessionKey, signal: AbortSignal | undefined): Promise<void> {
  for (let waits = 0; ; waits += 1) {
    try {
      await rebuildSession(db, key, { owner: newId('copy'), signal });
      return;
    } catch (error) {
      if (!isDomainError(error) || error.code !== 'rebuild_running' || waits >= REBUILD_WAITS_MAX) throw error;
      await sleep(REBUILD_WAIT_MS, undefined, { signal });
    }
  }
}

async function finishCopy(
  tx: Tx,
  { tenantId, sessionId, reason, marker }: Copy,
  { incarnation }: CopyTarget,
): Promise<{ lastSequence: number; closed: number }> {
  const key = { tenantId, sessionId };
  await lockSession(tx, key);
  const head = await lockHead(tx, key);
  if (head?.copying !== true || head.incarnation !== incarnation) throw givenUp(key);
  if (marker !== undefined) await appendAsServer(tx, key, { events: [marker], evenIfDeleted: true });
  const closed = await closeOpenInSession(tx, key, { reason, evenIfDeleted: true });
  return { lastSequence: await writeCopied(tx, key), closed };
}

const givenUp = ({ sessionId }: SessionKey): TransactionConflict =>
  new TransactionConflict(`The copy into session ${sessionId} took too long and was given up: repeat the call.`, { attempts: 1 });
