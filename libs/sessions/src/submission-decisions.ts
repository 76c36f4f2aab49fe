import type { SubmissionState } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import type { QueueHead } from './submission-rows.sql';

// Pure rules of submissions, from locked rows. No clock, no database.

export type EndDecision =
  | { readonly kind: 'apply' | 'keep' | 'closed' }
  | { readonly kind: 'claim-lost'; readonly epoch: number; readonly currentEpoch: number | null };

/** A repeat of the same end is a repeat, whatever has become of the claim; another end comes too late. An epoch must be that of a claim in force. */
export function decideEnd(
  submission: { readonly operationId: string; readonly state: SubmissionState },
  head: Pick<QueueHead, 'operationId' | 'state' | 'epoch' | 'claimInMs'> | undefined,
  wanted: { readonly state: 'completed' | 'failed'; readonly claimEpoch: number | undefined },
): EndDecision {
  if (submission.state === wanted.state) return { kind: 'keep' };
  if (submission.state !== 'pending') return { kind: 'closed' };
  if (wanted.claimEpoch === undefined) return { kind: 'apply' };
  const own = head?.operationId === submission.operationId ? head : undefined;
  const holds = own?.state === 'claimed' && own.epoch === wanted.claimEpoch && own.claimInMs !== null && isLive(own.claimInMs);
  return holds ? { kind: 'apply' } : { kind: 'claim-lost', epoch: wanted.claimEpoch, currentEpoch: own?.epoch ?? null };
}
