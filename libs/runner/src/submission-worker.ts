import type { Client } from '@runplane/client';
import {
  CLAIM_LEASE_MS_DEFAULT,
  cutText,
  redactError,
  SUBMISSION_BATCH_ROWS_MAX,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  type ClaimedSubmission,
} from '@runplane/contracts';
import {
  ownOwner,
  runClaimWorker,
  WAIT_SECONDS_DEFAULT,
  type WorkContext,
  type WorkerOptions,
  type WorkerReport,
  type WorkSource,
} from './claim-worker';

/** How a submission ended; a handler that returns nothing has completed it, one that throws gives it back with its error, to be tried again. */
export type SubmissionOutcome =
  | { readonly outcome: 'completed' }
  | { readonly outcome: 'failed'; readonly error: string }
  | { readonly outcome: 'released'; readonly delayMs?: number | undefined };

export type SubmissionHandler = (submission: ClaimedSubmission, context: WorkContext) => Promise<SubmissionOutcome | undefined | void>;

export interface SubmissionWorkerOptions extends WorkerOptions {
  readonly client: Pick<Client, 'claimSubmissions' | 'renewSubmissions' | 'settleSubmissions'>;
  /** Absent: all kinds. Turns (kind `turn`) are started by the service itself: whoever claims all kinds takes them from it. */
  readonly kind?: string | undefined;
  /** Only of sessions whose log nobody writes under a lease, or this owner does. */
  readonly leaseOwner?: string | undefined;
  readonly handle: SubmissionHandler;
}

type Settled = SubmissionOutcome & { readonly error?: string | undefined };

/**
 * Works off submissions, of each session one after the other, until `signal` aborts; resolves when every one that it held is told of, or lost: see
 * claim-worker.ts. What it holds beyond its places are submissions of other sessions.
 */
export function runSubmissionWorker(options: SubmissionWorkerOptions): Promise<WorkerReport> {
  return runClaimWorker<ClaimedSubmission, Settled>({ ...options, source: submissionsOf(options) });
}

const claimOf = ({ sessionId, operationId, epoch }: ClaimedSubmission): { sessionId: string; operationId: string; epoch: number } => ({
  sessionId,
  operationId,
  epoch,
});

/** An error that is too long must not cost the submission its end. */
const cut = (outcome: Settled): Settled =>
  outcome.error === undefined ? outcome : { ...outcome, error: cutText(outcome.error, SUBMISSION_ERROR_CODE_POINTS_MAX) };

function submissionsOf({
  client,
  kind,
  leaseOwner,
  owner = ownOwner,
  leaseMs = CLAIM_LEASE_MS_DEFAULT,
  waitSeconds = WAIT_SECONDS_DEFAULT,
}: SubmissionWorkerOptions): WorkSource<ClaimedSubmission, Settled> {
  const scope = { ...(kind === undefined ? {} : { kind }), ...(leaseOwner === undefined ? {} : { leaseOwner }) };
  return {
    claim: async (limit) => {
      const claimed = await client.claimSubmissions({ ...scope, owner, limit, leaseMs }, { waitSeconds });
      return claimed.map((work) => ({ work, remainingMs: work.claimRemainingMs }));
    },
    renew: async (claims) => {
      const verdicts = await client.renewSubmissions({ claims: claims.map(claimOf), leaseMs });
      return verdicts.map(({ verdict, claimRemainingMs }) => (verdict === 'ok' ? (claimRemainingMs ?? 0) : null));
    },
    settle: async (ends) => {
      const verdicts = await client.settleSubmissions(ends.map(({ work, outcome }) => ({ ...claimOf(work), ...cut(outcome) })));
      return verdicts.map(({ verdict }) => verdict === 'ok' || verdict === 'replayed');
    },
    completed: { outcome: 'completed' },
    released: { outcome: 'released' },
    failedTry: (error) => ({ outcome: 'released', error: redactError(error) }),
    batchMax: SUBMISSION_BATCH_ROWS_MAX,
  };
}
