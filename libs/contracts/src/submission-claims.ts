import { z } from 'zod';
import { identifier } from './identifiers';
import {
  CLAIM_LEASE_MS_DEFAULT,
  CLAIM_LEASE_MS_MAX,
  CLAIM_LEASE_MS_MIN,
  COUNTER_MAX,
  QUEUE_RELEASE_DELAY_MS_MAX,
  SUBMISSION_BATCH_ROWS_MAX,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  WAIT_SECONDS_MAX,
} from './limits';
import { SUBMISSION_STATES } from './states';
import { Submission } from './submissions';

// Claims of submissions as they cross the wire. A claim is named by session, operation and epoch; of a session only its oldest unfinished
// submission can be claimed.

const epoch = z.int().min(1).max(COUNTER_MAX);
const leaseMs = z.int().min(CLAIM_LEASE_MS_MIN).max(CLAIM_LEASE_MS_MAX).default(CLAIM_LEASE_MS_DEFAULT);
const error = z
  .string()
  .max(SUBMISSION_ERROR_CODE_POINTS_MAX * 4)
  .nullish();

export const ClaimSubmissions = z
  .strictObject({
    owner: identifier.meta({ description: 'One worker process: new at each of its starts' }),
    kind: identifier.optional().meta({ description: 'Only submissions of this kind' }),
    leaseOwner: identifier.optional().meta({
      description: 'Only of sessions whose log nobody writes under a lease, or this owner does',
    }),
    limit: z.int().min(1).max(SUBMISSION_BATCH_ROWS_MAX).default(1).meta({ description: 'At most; fewer where payloads are large' }),
    leaseMs,
  })
  .meta({ id: 'ClaimSubmissions' });
export type ClaimSubmissions = z.input<typeof ClaimSubmissions>;
export const ClaimSubmissionsBody = ClaimSubmissions.extend({
  waitSeconds: z.int().min(0).max(WAIT_SECONDS_MAX).default(0).meta({ description: 'Answer when there is something, at the latest then' }),
}).meta({ id: 'ClaimSubmissionsBody' });

/** What its holder needs to work: the epoch is its right to it. */
export const ClaimedSubmission = Submission.pick({
  sessionId: true,
  operationId: true,
  submissionId: true,
  kind: true,
  payload: true,
  source: true,
  expectedRevision: true,
  acceptedSequence: true,
  place: true,
  lastError: true,
})
  .extend({
    tenantId: z.string(),
    epoch,
    attempts: z.int().meta({ description: 'How often it was claimed, this claim included' }),
    attemptsLeft: z.int().meta({ description: 'How often it may still be claimed after this; then it fails' }),
    claimRemainingMs: z.int(),
  })
  .meta({ id: 'ClaimedSubmission' });
export type ClaimedSubmission = z.infer<typeof ClaimedSubmission>;
export const ClaimedSubmissions = z
  .object({ submissions: z.array(ClaimedSubmission).meta({ description: 'In the order in which they should be worked off' }) })
  .meta({ id: 'ClaimedSubmissions' });
export type ClaimedSubmissions = z.infer<typeof ClaimedSubmissions>;

const claim = { sessionId: identifier, operationId: identifier, epoch };
const batch = <Shape extends z.ZodType<{ sessionId: string }>>(shape: Shape) =>
  z
    .array(shape)
    .min(1)
    .max(SUBMISSION_BATCH_ROWS_MAX)
    .refine((given) => new Set(given.map(({ sessionId }) => sessionId)).size === given.length, 'names a session twice');

export const RenewSubmissions = z.strictObject({ claims: batch(z.strictObject(claim)), leaseMs }).meta({ id: 'RenewSubmissions' });
export type RenewSubmissions = z.input<typeof RenewSubmissions>;
export const RenewSubmission = z.strictObject({ epoch, leaseMs }).meta({ id: 'RenewSubmission' });
export type RenewSubmission = z.input<typeof RenewSubmission>;
export const RenewedSubmission = z.object({ operationId: z.string(), claimRemainingMs: z.int() }).meta({ id: 'RenewedSubmission' });
export type RenewedSubmission = z.infer<typeof RenewedSubmission>;

const delayMs = z
  .int()
  .min(0)
  .max(QUEUE_RELEASE_DELAY_MS_MAX)
  .optional()
  .meta({ description: 'When it may be claimed again. Absent: at once, or after a back-off where an error is told' });

/** Released without an error the try does not count; with one it does, and the last one fails the submission. */
export const ReleaseSubmission = z
  .strictObject({ epoch, error: error.meta({ description: 'Why the try failed' }), delayMs })
  .meta({ id: 'ReleaseSubmission' });
export type ReleaseSubmission = z.input<typeof ReleaseSubmission>;

/** How a claim ends; `released` gives the submission back. */
export const SUBMISSION_SETTLEMENTS = ['completed', 'failed', 'released'] as const;
export type SubmissionSettlement = (typeof SUBMISSION_SETTLEMENTS)[number];

export const SettleSubmissions = z
  .strictObject({
    settlements: batch(
      z.strictObject({ ...claim, outcome: z.enum(SUBMISSION_SETTLEMENTS), error, delayMs }).superRefine((given, ctx) => {
        const refuse = (path: string, message: string): void => ctx.addIssue({ code: 'custom', path: [path], message });
        if (given.outcome === 'completed' && given.error != null) refuse('error', 'a completed submission has no error');
        if (given.outcome !== 'released' && given.delayMs !== undefined) refuse('delayMs', 'only a released submission comes again');
      }),
    ),
  })
  .meta({ id: 'SettleSubmissions' });
export type SettleSubmissions = z.input<typeof SettleSubmissions>;

/** What became of one claim in a call about several. */
export const SubmissionVerdict = z
  .object({
    sessionId: z.string(),
    operationId: z.string(),
    verdict: z
      .enum(['ok', 'replayed', 'claim_lost', 'closed', 'not_found'])
      .meta({ description: '`closed`: it has ended in another way. `claim_lost`: somebody else may be working on it' }),
    state: z.enum(SUBMISSION_STATES).nullable(),
    currentEpoch: z.int().nullable().meta({ description: 'Of the claims, while it is the oldest of its session' }),
    claimRemainingMs: z.int().nullable(),
  })
  .meta({ id: 'SubmissionVerdict' });
export type SubmissionVerdict = z.infer<typeof SubmissionVerdict>;
export const SubmissionVerdicts = z
  .object({ claims: z.array(SubmissionVerdict).meta({ description: 'In the order of the call' }) })
  .meta({ id: 'SubmissionVerdicts' });
export type SubmissionVerdicts = z.infer<typeof SubmissionVerdicts>;

export const RequeuedSubmission = z
  .object({ submission: Submission, changed: z.boolean().meta({ description: 'False: it waits already' }) })
  .meta({ id: 'RequeuedSubmission' });
export type RequeuedSubmission = z.infer<typeof RequeuedSubmission>;
