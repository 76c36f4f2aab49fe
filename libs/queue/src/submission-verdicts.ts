import { ClaimLost, SubmissionNotFound, type SubmissionVerdict } from '@runplane/contracts';
import { inLockOrder, takingLock, type Tx } from '@runplane/database';
import type { HoldRow, NamedClaim } from './submission-hold.sql';

// What calls about claims of submissions answer, for many and for one.

/** Why a claim is not held. */
export const lostOrNone = ({ state }: HoldRow): 'claim_lost' | 'not_found' => (state === null ? 'not_found' : 'claim_lost');

export function verdictOf({ sessionId, operationId }: NamedClaim, row: HoldRow, verdict: SubmissionVerdict['verdict']): SubmissionVerdict {
  const { state, currentEpoch, claimRemainingMs } = row;
  return { sessionId, operationId, verdict, state, currentEpoch, claimRemainingMs };
}

/** Declares the heads that a statement over claims may wait for. */
export function takingHeads(tx: Tx, tenantId: string, claims: readonly NamedClaim[]): void {
  takingLock(tx, 'submissionHead', ...inLockOrder(claims.map(({ sessionId }) => `${tenantId}/${sessionId}`)));
}

/** What a statement told of each claim, in the order of the call. */
export function inOrder<Claim extends NamedClaim>(claims: readonly Claim[], found: readonly HoldRow[]): [Claim, HoldRow][] {
  const bySession = new Map(found.map((row) => [row.sessionId, row]));
  return claims.map((claim) => {
    const row = bySession.get(claim.sessionId);
    if (row === undefined) throw new Error(`a statement over claims told nothing of session ${claim.sessionId}`);
    return [claim, row];
  });
}

/** Errors: SubmissionNotFound, ClaimLost. */
export function requireOk(verdict: SubmissionVerdict | undefined, { sessionId, operationId, epoch }: NamedClaim): SubmissionVerdict {
  if (verdict === undefined || verdict.verdict === 'not_found')
    throw new SubmissionNotFound(`Session ${sessionId} has no submission ${operationId}.`, { sessionId, operationId });
  if (verdict.verdict !== 'claim_lost') return verdict;
  const { currentEpoch } = verdict;
  throw new ClaimLost(`The claim ${epoch} of submission ${operationId} in session ${sessionId} is over.`, {
    sessionId,
    operationId,
    epoch,
    currentEpoch,
  });
}
