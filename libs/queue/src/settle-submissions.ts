import {
  type ClaimLost,
  freeText,
  isDomainError,
  parseInput,
  SettleSubmissions,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  type ReleaseSubmission,
  type Submission,
  type SubmissionVerdict,
} from '@runplane/contracts';
import { announce, executorOf, isTx, type At, type Db } from '@runplane/database';
import { getSubmission, markSubmissionEnded, markSubmissionsEnded, submissionStreams, type SubmissionKey } from '@runplane/sessions';
import { eachBounded } from './each-bounded';
import { releaseHeads, type GivenRelease, type HoldRow, type NamedClaim } from './submission-hold.sql';
import { inOrder, lostOrNone, requireOk, takingHeads, verdictOf } from './submission-verdicts';

/**
 * Ends claims with their results, or gives them back.
 *
 * Input     outcome `completed`, `failed`: the submission's state, told by an event of its session. `released`: it waits again, after delayMs; without an
 *           error the try does not count, with one it does: back-off 1 s doubling to 5 min, and the tenth fails the submission.
 * Returns   a verdict for each, in the order of the call: `ok`; `replayed`, it was done before; `claim_lost`; `closed`, it has ended in another way;
 *           `not_found`. Verdicts are apart: what is lost of one does not take back another.
 * Locks     those given back: submission heads by session, one statement; the others: session heads → submission heads, one statement that passes over what
 *           somebody holds, and for what that one has not ended: session head → submission head, each by itself.
 * Writes    submission_heads; of the others as endSubmission.   Emits: submission/completed, submission/failed.
 * Errors    InvalidRequest; of the database, after which some may have been settled: repeat the call.
 * Repeat    safe.   Keeps: OWN-1, OWN-2, FIFO-1.   Source: the original's release, which checked neither owner nor attempt.
 */
export async function settleSubmissions(
  db: Db,
  { tenantId, ...input }: { tenantId: string } & SettleSubmissions,
): Promise<SubmissionVerdict[]> {
  const { settlements } = parseInput(SettleSubmissions, input);
  const released = settlements.filter(({ outcome }) => outcome === 'released');
  const ended = settlements.flatMap(({ outcome, ...claim }) => (outcome === 'released' ? [] : [{ ...claim, outcome }]));
  const verdicts = [
    ...(released.length === 0 ? [] : await releaseSubmissions(db, tenantId, released)),
    ...(await endSubmissions(db, tenantId, ended)),
  ];
  const bySession = new Map(verdicts.map((verdict) => [verdict.sessionId, verdict]));
  return settlements.flatMap(({ sessionId }) => bySession.get(sessionId) ?? []);
}

/** Connections of the pool that one call may take. */
const ENDS_AT_A_TIME = 4;

type Given = NamedClaim & { readonly error?: string | null | undefined };
type GivenEnd = Given & { readonly outcome: 'completed' | 'failed' };

/** All together, and then those by themselves of which there is more to be told. */
async function endSubmissions(db: Db, tenantId: string, given: readonly GivenEnd[]): Promise<SubmissionVerdict[]> {
  const ends = given.map(({ outcome, error, epoch, ...named }) => ({ ...named, end: { state: outcome, error, claimEpoch: epoch } }));
  const ended = ends.length > 1 ? await markSubmissionsEnded(db, { tenantId, ends }) : new Set<number>();
  const left = given.filter((_, place) => !ended.has(place));
  return [
    ...[...ended].flatMap((place) => given[place] ?? []).map((end) => endVerdict(end, 'ok')),
    ...(await eachBounded(left, ENDS_AT_A_TIME, (end) => endClaimed(db, tenantId, end))),
  ];
}

const endVerdict = ({ sessionId, operationId, outcome }: GivenEnd, verdict: 'ok' | 'replayed'): SubmissionVerdict => ({
  sessionId,
  operationId,
  verdict,
  state: outcome,
  currentEpoch: null,
  claimRemainingMs: null,
});

async function endClaimed(db: Db, tenantId: string, given: GivenEnd): Promise<SubmissionVerdict> {
  const { outcome, error, epoch, ...named } = given;
  const answer = endVerdict(given, 'ok');
  try {
    const { changed } = await markSubmissionEnded(db, { tenantId, ...named, end: { state: outcome, error, claimEpoch: epoch } });
    return endVerdict(given, changed ? 'ok' : 'replayed');
  } catch (refusal) {
    if (!isDomainError(refusal)) throw refusal;
    switch (refusal.code) {
      case 'claim_lost':
        return { ...answer, verdict: 'claim_lost', state: 'pending', currentEpoch: (refusal as ClaimLost).data.currentEpoch };
      case 'submission_closed':
        return { ...answer, verdict: 'closed', state: outcome === 'completed' ? 'failed' : 'completed' };
      case 'submission_not_found':
      case 'session_not_found':
      case 'session_deleted':
        return { ...answer, verdict: 'not_found', state: null };
      default:
        throw refusal;
    }
  }
}

async function releaseSubmissions(
  at: At,
  tenantId: string,
  releases: readonly (Given & { readonly delayMs?: number | undefined })[],
): Promise<SubmissionVerdict[]> {
  const given: GivenRelease[] = releases.map(({ sessionId, operationId, epoch, error, delayMs }) => ({
    sessionId,
    operationId,
    epoch,
    error: error == null ? null : freeText(error, SUBMISSION_ERROR_CODE_POINTS_MAX),
    delayMs: delayMs ?? null,
  }));
  if (isTx(at)) takingHeads(at, tenantId, given);
  const found = await releaseHeads(executorOf(at), { tenantId, releases: given, wait: true });
  if (found.some(({ isHeld }) => isHeld)) for (const stream of submissionStreams(tenantId)) announce(at, stream);
  return inOrder(given, found).map(([claim, row]) =>
    verdictOf(claim, row, row.isHeld ? 'ok' : wasReleased(claim, row) ? 'replayed' : lostOrNone(row)),
  );
}

/**
 * Gives one claim back: it waits again, and its old holder is fenced.
 *
 * Input     error: why the try failed; with one it counts, and comes again after a back-off (1 s doubling to 5 min; the tenth fails the submission);
 *           without one it does not count. delayMs: another pause.
 * Returns   the submission.   Locks: submission head.   Errors: SubmissionNotFound, ClaimLost, InvalidRequest.   Repeat: safe.   Keeps: OWN-1, OWN-2.
 */
export async function releaseSubmission(
  at: At,
  { tenantId, sessionId, operationId, epoch, error, delayMs }: SubmissionKey & ReleaseSubmission,
): Promise<Submission> {
  const settlement = { sessionId, operationId, epoch, outcome: 'released' as const, error, delayMs };
  const { settlements } = parseInput(SettleSubmissions, { settlements: [settlement] });
  const [verdict] = await releaseSubmissions(at, tenantId, settlements);
  requireOk(verdict, settlement);
  return getSubmission(at, { tenantId, sessionId, operationId });
}

/** A release makes the epoch grow by one, and a claim after it by one more. */
const wasReleased = ({ epoch }: NamedClaim, { isWaiting, currentEpoch }: HoldRow): boolean => isWaiting && currentEpoch === epoch + 1;
