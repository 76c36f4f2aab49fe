import { z } from 'zod';
import { JsonRecord } from './wire-json';

// Answers to "why is it not moving?". A cause is a fact about one run or session, found by the predicates that the operations use.

/** Each has its sentence in libs/runs/src/run-explanation.ts and a test that makes it. */
export const RUN_CAUSES = [
  'ended',
  'working',
  'working-silently',
  'waits-for-approval',
  'waits-for-input',
  'tool-running',
  'command-not-acknowledged',
  'command-cancel-requested',
  'runner-idle',
  'runner-lost-will-requeue',
  'runner-lost-will-fail',
  'duration-over',
  'cancel-requested',
  'cancel-under-way',
  'cancel-overdue',
  'cancel-runner-lost',
  'nothing-to-do',
  'waits-for-runner',
  'waits-for-dispatcher',
  'no-dispatcher',
  'waits-for-place',
  'launch-backs-off',
  'launching',
  'dispatcher-lost',
  'launches-used-up',
  'dispatch-ended',
  'waits-for-claim',
  'claim-overdue',
] as const;
export type RunCause = (typeof RUN_CAUSES)[number];

export const SESSION_CAUSES = [
  'never-used',
  'free',
  'waits-for-approval',
  'waits-for-input',
  'storage-leaving',
  'takeover-possible',
  'busy',
] as const;
export type SessionCause = (typeof SESSION_CAUSES)[number];

export const RunExplanation = z
  .strictObject({
    runId: z.string(),
    cause: z.enum(RUN_CAUSES),
    isMoving: z.boolean().meta({ description: 'False where somebody or something has to be looked at' }),
    sentence: z.string(),
    nextChangeInMs: z.int().nullable().meta({ description: 'When the service acts by itself if nothing else happens; null: it does not' }),
    facts: JsonRecord,
  })
  .meta({ id: 'RunExplanation' });
export type RunExplanation = z.infer<typeof RunExplanation>;

export const SessionExplanation = z
  .strictObject({
    sessionId: z.string(),
    cause: z.enum(SESSION_CAUSES),
    isMoving: z.boolean(),
    sentence: z.string(),
    facts: JsonRecord,
    run: RunExplanation.nullable().meta({ description: 'Of the open turn’s run' }),
  })
  .meta({ id: 'SessionExplanation' });
export type SessionExplanation = z.infer<typeof SessionExplanation>;

/** Each has its sentence in libs/queue/src/submission-explanation.ts and a test that makes it. */
export const SUBMISSION_CAUSES = [
  'ended',
  'can-be-requeued',
  'behind-others',
  'worked-on',
  'worker-lost',
  'tries-used-up',
  'waits-for-turn',
  'backs-off',
  'waits-for-its-time',
  'waits-for-worker',
  'no-worker',
] as const;
export type SubmissionCause = (typeof SUBMISSION_CAUSES)[number];

export const SubmissionExplanation = z
  .strictObject({
    sessionId: z.string(),
    operationId: z.string(),
    cause: z.enum(SUBMISSION_CAUSES),
    isMoving: z.boolean().meta({ description: 'False where somebody or something has to be looked at' }),
    sentence: z.string(),
    nextChangeInMs: z.int().nullable().meta({ description: 'When the service acts by itself if nothing else happens; null: it does not' }),
    facts: JsonRecord,
    run: RunExplanation.nullable().meta({ description: 'Of the open turn that it waits for' }),
  })
  .meta({ id: 'SubmissionExplanation' });
export type SubmissionExplanation = z.infer<typeof SubmissionExplanation>;
