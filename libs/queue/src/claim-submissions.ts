import { ClaimSubmissions, isDomainError, parseInput, SUBMISSION_ATTEMPTS_MAX, type ClaimedSubmission } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { ALL_SUBMISSIONS, getSubmission, submissionStreams } from '@runplane/sessions';
import { claimHeads, type ClaimedRow, type SubmissionScope } from './submission-claim.sql';
import { settleSubmissions } from './settle-submissions';
import { waitForClaims } from './wait-for-claims';

export type ClaimSubmissionsInput = ClaimSubmissions &
  (
    | { readonly tenantId: string }
    /** Of all tenants: only for the operator's own workers, and of one kind; no credential of a tenant leads here. */
    | { readonly tenantId?: undefined; readonly kind: string }
  );

/**
 * Claims the oldest unfinished submission of each of some sessions for a worker, the longest ready first: it gets an epoch, and a time that its holder
 * renews. While it is claimed, and until it has ended, nothing else of its session can be claimed.
 *
 * Input     limit: 1 to 100, default 1; leaseMs: 5 s to 10 min, default 30 s; owner: one process start; kind; leaseOwner: only sessions whose lease is
 *           free, over, or this owner's: at most 200 ready ones are looked at; where that is not enough, those of others step back by a second.
 * Returns   the claimed submissions in the order in which they should be worked off; none: nothing is ready.
 * Locks     submission heads, SKIP LOCKED. One statement, and a commit of its own: inside a transaction a claim would hold up appends.
 * Writes    submission_heads. Appends nothing.
 * Errors    InvalidRequest.
 * Repeat    a repeat claims further ones; a claim whose answer was lost ends with its time.
 * Keeps     FIFO-1, OWN-1, OWN-2.   Source: the original's claim_next, whose cost grew with the backlog.
 */
export async function claimSubmissions(db: Db, { tenantId, ...input }: ClaimSubmissionsInput): Promise<ClaimedSubmission[]> {
  const { kind, leaseOwner, ...claim } = parseInput(ClaimSubmissions, input);
  const claimed = await claimHeads(db.sql, { ...claim, scope: scopeOf(tenantId, kind), leaseOwner });
  const found = await Promise.all(claimed.map((row) => withText(db, row)));
  return found.filter((each) => each !== undefined);
}

function scopeOf(tenantId: string | undefined, kind: string | undefined): SubmissionScope {
  if (tenantId !== undefined) return { tenantId, kind };
  if (kind !== undefined) return { kind };
  throw new TypeError('a claim over all tenants names a kind of submission');
}

/** What was accepted while the claim was under way has its text read by another statement: nothing can change it now. Undefined: its session was deleted. */
async function withText(
  db: Db,
  { submissionId, earlierAttempts, payload, source, acceptedSequence, ...row }: ClaimedRow,
): Promise<ClaimedSubmission | undefined> {
  const attemptsLeft = Math.max(SUBMISSION_ATTEMPTS_MAX - row.attempts, 0);
  if (submissionId !== null && source !== null && acceptedSequence !== null)
    return { ...row, submissionId, payload, source, acceptedSequence, attempts: row.attempts + (earlierAttempts ?? 0), attemptsLeft };
  const read = await getSubmission(db, row).catch(unlessGone);
  if (read === undefined) return undefined;
  return {
    ...row,
    submissionId: read.submissionId,
    payload: read.payload,
    source: read.source,
    expectedRevision: read.expectedRevision,
    acceptedSequence: read.acceptedSequence,
    attempts: read.attempts,
    attemptsLeft,
  };
}

const GONE: ReadonlySet<string> = new Set(['submission_not_found', 'session_not_found', 'session_deleted']);

function unlessGone(error: unknown): undefined {
  if (!isDomainError(error) || !GONE.has(error.code)) throw error;
}

/**
 * Claims as soon as there is something, at the latest when the time is over: woken by whoever accepts a submission, ends one or gives one back, and by
 * its own poll each second. Holds no connection while it waits.
 */
export function waitForSubmissions(
  db: Db,
  { waitMs, signal, ...input }: ClaimSubmissionsInput & { waitMs: number; signal?: AbortSignal | undefined },
): Promise<ClaimedSubmission[]> {
  const [ofTenant] = submissionStreams(input.tenantId ?? '');
  return waitForClaims(db, {
    stream: input.tenantId === undefined ? ALL_SUBMISSIONS : ofTenant,
    waitMs,
    signal,
    claim: () => claimSubmissions(db, input),
    giveBack: (tenantId, own) =>
      settleSubmissions(db, {
        tenantId,
        settlements: own.map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch, outcome: 'released' as const })),
      }),
  });
}
