import { z } from 'zod';
import { identifier } from './identifiers';
import { SUBMISSION_ERROR_CODE_POINTS_MAX } from './limits';
import { SUBMISSION_STATES } from './states';
import { Json, JsonRecord } from './wire-json';

// Submissions as they cross the wire: what a front end puts before a session, in order, and what becomes of it.

const time = z.iso.datetime();
const sequence = z.int().min(-1);
const durableCursor = z
  .string()
  .nullable()
  .meta({ description: 'The place of the accepting event in the feed; null for one that no event of this store stands behind' });

export const AcceptSubmission = z
  .strictObject({
    kind: identifier.meta({ description: 'Free; a turn for the session has the kind `turn`' }),
    payload: Json.default({}),
    source: JsonRecord.default({}).meta({ description: 'Where it came from' }),
    expectedRevision: sequence
      .optional()
      .meta({ description: 'The last sequence of the session that the caller has seen; -1: its log is empty. Another one is refused' }),
  })
  .meta({ id: 'AcceptSubmission' });
export type AcceptSubmission = z.input<typeof AcceptSubmission>;

export const SubmissionReceipt = z
  .object({
    operationId: z.string(),
    submissionId: z.string(),
    sessionId: z.string(),
    status: z
      .enum(['accepted', 'duplicate'])
      .meta({ description: '`duplicate`: the same operation was accepted before, with the same content' }),
    state: z.enum(SUBMISSION_STATES).meta({ description: 'What has become of it so far' }),
    acceptedSequence: z.int().meta({ description: 'Of the accepting event; negative where there is none' }),
    durableCursor,
  })
  .meta({ id: 'SubmissionReceipt', description: 'Durably accepted: neither begun nor answered' });
export type SubmissionReceipt = z.infer<typeof SubmissionReceipt>;

export const Submission = z
  .object({
    operationId: z.string(),
    submissionId: z.string(),
    sessionId: z.string(),
    kind: z.string(),
    payload: Json,
    source: JsonRecord,
    expectedRevision: z.int().nullable(),
    state: z.enum(SUBMISSION_STATES),
    claim: z
      .object({ owner: z.string(), epoch: z.int(), remainingMs: z.int() })
      .nullable()
      .meta({ description: 'Who works on it under a live claim' }),
    attempts: z.int().meta({ description: 'How often it was claimed' }),
    lastError: z.string().nullable().meta({ description: 'Of its last try that failed' }),
    readyInMs: z.int().nullable().meta({
      description: 'Until it may be claimed, 0 at once; null while it is claimed, has ended, or others of its session come first',
    }),
    acceptedSequence: z.int(),
    place: z.int().meta({ description: 'Its order in the session; a re-queue gives a greater one' }),
    durableCursor,
    createdAt: time,
    endedAt: time.nullable(),
    endedSequence: z.int().nullable(),
    runId: z.string().nullable().meta({ description: 'The run that a turn became' }),
  })
  .meta({ id: 'Submission' });
export type Submission = z.infer<typeof Submission>;

export const SubmissionList = z
  .object({
    submissions: z.array(Submission),
    cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end. A page with large payloads is short' }),
  })
  .meta({ id: 'SubmissionList' });
export type SubmissionList = z.infer<typeof SubmissionList>;

export const SubmissionCounts = z
  .object({ unfinished: z.int(), turns: z.int().meta({ description: 'Of these, the ones of kind `turn` or `user-input`' }) })
  .meta({ id: 'SubmissionCounts' });
export type SubmissionCounts = z.infer<typeof SubmissionCounts>;

/** Kinds that the second count counts. */
export const TURN_SUBMISSION_KINDS = ['turn', 'user-input'] as const;

export const EndSubmission = z
  .strictObject({
    state: z.enum(['completed', 'failed']),
    error: z
      .string()
      .max(SUBMISSION_ERROR_CODE_POINTS_MAX * 4)
      .nullish()
      .meta({ description: 'Why it failed; only with `failed`' }),
    claimEpoch: z.int().min(0).optional().meta({
      description: 'Of the claim under which the caller worked on it: refused where that is over. Without one the caller ends it by hand',
    }),
  })
  .refine(({ state, error }) => state === 'failed' || error == null, { path: ['error'], error: 'a completed submission has no error' })
  .meta({ id: 'EndSubmission' });
export type EndSubmission = z.input<typeof EndSubmission>;

export const EndedSubmission = z
  .object({ submission: Submission, changed: z.boolean().meta({ description: 'False: it had ended in the same way before' }) })
  .meta({ id: 'EndedSubmission' });
export type EndedSubmission = z.infer<typeof EndedSubmission>;

/** A submission of an older store that no event of the log stands behind. */
export const ImportedSubmission = z
  .strictObject({
    operationId: identifier,
    submissionId: identifier,
    kind: identifier,
    payload: Json.default({}),
    source: JsonRecord.default({}),
    expectedRevision: z.int().nullish(),
    state: z.enum(SUBMISSION_STATES).default('pending'),
    attempts: z.int().min(0).max(2_147_483_647).default(0),
    lastError: z.string().nullish(),
    createdAt: time.refine((given) => new Date(given).getUTCFullYear() >= 1, 'must not lie before the year 1').optional(),
  })
  .meta({ id: 'ImportedSubmission' });
export type ImportedSubmission = z.input<typeof ImportedSubmission>;
