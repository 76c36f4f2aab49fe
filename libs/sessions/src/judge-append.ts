import { SequenceConflict, SessionLeaseLost } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { sessionDeleted, sessionNotFound } from './session';
import type { HeadRow } from './session-head.sql';

// Why a head takes no append, decided from what was read. Pure; the statement that writes judges the same again under the lock.

type LeaseOf = Pick<HeadRow, 'sessionId' | 'leaseOwner' | 'leaseEpoch' | 'leaseInMs'>;

/** Errors: SessionNotFound while the session is being copied, SessionDeleted. */
export function assertOpen({ sessionId, copying, deletedAt }: Pick<HeadRow, 'sessionId' | 'copying' | 'deletedAt'>): void {
  if (copying) throw sessionNotFound(sessionId);
  if (deletedAt !== null) throw sessionDeleted(sessionId, deletedAt);
}

/** Errors: SessionLeaseLost unless the lease of this epoch is in force. */
export function assertFence(head: LeaseOf, epoch: number): void {
  const { sessionId, leaseEpoch } = head;
  if (leaseEpoch === epoch && head.leaseOwner !== null && isLive(head.leaseInMs)) return;
  const reason = leaseEpoch === 0 ? 'none' : leaseEpoch === epoch ? 'expired' : 'other';
  const why = { none: 'nobody holds it', other: 'another one is in force, or was', expired: 'it has ended' }[reason];
  throw new SessionLeaseLost(`The lease ${epoch} of session ${sessionId} is not in force: ${why}.`, {
    sessionId,
    epoch,
    currentEpoch: leaseEpoch,
    reason,
  });
}

/** Errors: SequenceConflict, with where the log really goes on. */
export function assertSequence({ sessionId, lastSequence }: Pick<HeadRow, 'sessionId' | 'lastSequence'>, wanted: number | undefined): void {
  const actualSequence = lastSequence + 1;
  if (wanted === undefined || wanted === actualSequence) return;
  throw new SequenceConflict(`The next event of session ${sessionId} has the sequence ${actualSequence}, not ${wanted}.`, {
    sessionId,
    expectedSequence: wanted,
    actualSequence,
  });
}
