import {
  AcquireSessionLease,
  LockTimeout,
  parseInput,
  ReleaseSessionLease,
  RenewSessionLease,
  SessionLeased,
  SessionLeaseLost,
  type SessionLease,
} from '@runplane/contracts';
import { backOffMs, executorOf, isTx, takingLock, type At, type Db } from '@runplane/database';
import { setTimeout as sleep } from 'node:timers/promises';
import { requireHead } from './create-session';
import { assertOpen } from './judge-append';
import { sessionNotFound } from './session';
import { findLastSequence } from './session-head.sql';
import { acquireLease, endLease, renewLease, revokeLease, type LeaseRow } from './session-lease.sql';
import type { SessionKey } from './session.sql';

/**
 * Acquires the right to append to a session's log for a time.
 *
 * Input     owner: one incarnation of a process, another at each start; leaseMs: 1 s to 10 min, 30 s by default.
 * Returns   the lease. The holder gets its own back, prolonged and never shortened, under the same epoch; an ended or released one comes under the
 *           next epoch, to whoever asks.
 * Locks     session head, one statement: waits for an append that is under way, so that none which passed its check comes behind (OWN-3).
 * Errors    SessionLeased (another owner; retryable), SessionNotFound, SessionDeleted, InvalidRequest.
 * Repeat    safe.   Keeps: OWN-1, OWN-2.   Source: the original's acquire.
 */
export async function acquireSessionLease(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & AcquireSessionLease,
): Promise<SessionLease> {
  const wanted = parseInput(AcquireSessionLease, input);
  const key = { tenantId, sessionId };
  lockedBy(at, key);
  const row = await acquireLease(executorOf(at), key, wanted);
  if (row === undefined) throw sessionNotFound(sessionId);
  assertOpen({ sessionId, ...row });
  if (row.granted) return toLease(sessionId, row);
  throw new SessionLeased(`Session ${sessionId} is being written by ${row.owner ?? 'nobody'}.`, {
    sessionId,
    owner: row.owner ?? '',
    leaseRemainingMs: row.remainingMs ?? 0,
  });
}

/**
 * Prolongs a lease in force; one that has ended is not revived. Called alone it runs on a connection of its own, so that a busy pool cannot starve
 * it, and never waits there for a head that somebody holds: other renewals of this process come after it. It looks again instead.
 * Locks: session head. Errors: SessionLeaseLost, SessionNotFound, SessionDeleted, LockTimeout, InvalidRequest. Repeat: safe.
 */
export async function renewSessionLease(at: At, { tenantId, sessionId, ...input }: SessionKey & RenewSessionLease): Promise<SessionLease> {
  const { owner, epoch, leaseMs } = parseInput(RenewSessionLease, input);
  const key = { tenantId, sessionId };
  lockedBy(at, key);
  const row = isTx(at)
    ? await renewLease(at, key, { owner, epoch, leaseMs, wait: true })
    : await renewOnLane(at, key, { owner, epoch, leaseMs });
  if (row === undefined) throw sessionNotFound(sessionId);
  assertOpen({ sessionId, ...row });
  if (row.granted) return toLease(sessionId, row);
  throw lostLease(sessionId, epoch, row);
}

/** How soon a renewal looks again at a head that somebody holds. */
const LOOK_AGAIN = { baseMs: 10, maxMs: 100 };

/** Undefined: there is no such session. Errors: LockTimeout, after as long as a statement would have waited. */
async function renewOnLane(
  db: Db,
  key: SessionKey,
  lease: { owner: string; epoch: number; leaseMs: number },
): Promise<LeaseRow | undefined> {
  const deadline = performance.now() + db.options.lockTimeoutMs;
  for (let look = 1; ; look += 1) {
    const row = await renewLease(db.lane, key, { ...lease, wait: false });
    if (row !== undefined) return row;
    if ((await findLastSequence(db.lane, key)) === undefined) return undefined;
    if (performance.now() > deadline) throw new LockTimeout();
    await sleep(backOffMs(look, LOOK_AGAIN));
  }
}

/** Gives a lease back; nothing happens where it is over. Locks: session head. Errors: SessionNotFound, InvalidRequest. Repeat: safe. */
export async function releaseSessionLease(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & ReleaseSessionLease,
): Promise<{ released: boolean }> {
  const { owner, epoch } = parseInput(ReleaseSessionLease, input);
  const key = { tenantId, sessionId };
  lockedBy(at, key);
  const released = await endLease(executorOf(at), key, { owner, epoch });
  if (!released) await requireHead(executorOf(at), key);
  return { released };
}

/** Takes the lease away from whoever holds it; its next append is refused. Locks: session head. Errors: SessionNotFound. Repeat: safe. */
export async function revokeSessionLease(at: At, { tenantId, sessionId }: SessionKey): Promise<{ revoked: boolean }> {
  const key = { tenantId, sessionId };
  lockedBy(at, key);
  const revoked = await revokeLease(executorOf(at), key);
  if (!revoked) await requireHead(executorOf(at), key);
  return { revoked };
}

function lockedBy(at: At, { tenantId, sessionId }: SessionKey): void {
  if (isTx(at)) takingLock(at, 'sessionHead', `${tenantId}/${sessionId}`);
}

function toLease(sessionId: string, { owner, epoch, expiresAt, remainingMs }: LeaseRow): SessionLease {
  if (owner === null || expiresAt === null || remainingMs === null)
    throw new Error(`the lease of session ${sessionId} was given to nobody`);
  return { sessionId, owner, epoch, expiresAt, remainingMs };
}

function lostLease(sessionId: string, epoch: number, { epoch: currentEpoch }: LeaseRow): SessionLeaseLost {
  const reason = currentEpoch === 0 ? 'none' : currentEpoch === epoch ? 'expired' : 'other';
  return new SessionLeaseLost(`The lease ${epoch} of session ${sessionId} is not in force any more.`, {
    sessionId,
    epoch,
    currentEpoch,
    reason,
  });
}
