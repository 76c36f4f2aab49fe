import { z } from 'zod';
import {
  CANCEL_GRACE_MS_MAX,
  CLAIM_DEADLINE_MS_DEFAULT,
  LEASELESS_TYPES_MAX,
  PARKED_DAYS_DEFAULT,
  RETENTION_DAYS_MAX,
  RUN_ATTEMPTS_MAX,
  RUN_DURATION_MS_MAX,
  RUN_DURATION_MS_MIN,
} from './limits';
import { RUNNER_LOST_POLICIES } from './states';

const days = z.int().min(1).max(RETENTION_DAYS_MAX).nullable();

const retention = {
  runsDays: days.meta({ description: 'Ended runs with everything under them, from their end' }),
  eventsDays: days.meta({ description: 'The events of ended runs, from the end; the runs themselves stay' }),
  intentsDays: days.meta({ description: 'Finished dispatch intents of ended runs, from their finish' }),
  cancelRequestsDays: days.meta({ description: 'Cancel requests that have been answered, from the answer' }),
  runnersDays: days.meta({ description: 'Runners that are silent, from when they were last seen' }),
  readersDays: days.meta({ description: 'Readers of sessions that have marked nothing read since then, with their marks' }),
  queueTasksDays: days.meta({ description: 'Ended queue tasks with their attempts and read marks, from their end' }),
  parkedDays: days.meta({ description: 'Events that a sink does not take and at which their key is parked, from when they began to wait' }),
  archive: z.boolean().meta({
    description:
      'Runs, events, queue tasks and parked events are removed only when a copy has been archived and read back; false: without a copy',
  }),
};

/** How long what has ended is kept, in days of the database's clock; null: for ever. Only parked events go without a word of the tenant. */
export const RetentionPolicy = z
  .strictObject({
    runsDays: retention.runsDays.default(null),
    eventsDays: retention.eventsDays.default(null),
    intentsDays: retention.intentsDays.default(null),
    cancelRequestsDays: retention.cancelRequestsDays.default(null),
    runnersDays: retention.runnersDays.default(null),
    readersDays: retention.readersDays.default(null),
    queueTasksDays: retention.queueTasksDays.default(null),
    parkedDays: retention.parkedDays.default(PARKED_DAYS_DEFAULT),
    archive: retention.archive.default(true),
  })
  .meta({ id: 'RetentionPolicy' });
export type RetentionPolicy = z.infer<typeof RetentionPolicy>;

/** Parts of a policy that win over what the tenant has set; what is absent stays as it is set. */
export const RetentionOverride = z.strictObject(retention).partial().meta({ id: 'RetentionOverride' });
export type RetentionOverride = z.infer<typeof RetentionOverride>;

/** What a tenant may set; stored as JSON on its row and checked here whenever it is read or written. */
export const TenantSettings = z
  .strictObject({
    /** A dispatched run that no runner has claimed by then fails; one that waits for a runner of its own may be replaced by the next turn. */
    claimDeadlineMs: z.int().min(1_000).max(86_400_000).default(CLAIM_DEADLINE_MS_DEFAULT),
    cancelGraceMs: z.int().min(0).max(CANCEL_GRACE_MS_MAX).optional(),
    onRunnerLost: z.enum(RUNNER_LOST_POLICIES).default('fail'),
    maxAttempts: z.int().min(1).max(RUN_ATTEMPTS_MAX).optional(),
    /** For runs that say nothing of their own; absent: no limit. */
    maxDurationMs: z.int().min(RUN_DURATION_MS_MIN).max(RUN_DURATION_MS_MAX).optional(),
    /** Session event types, or families of them (`metrics/*`), that may be appended without a lease, beside the built-in ones. */
    leaselessEventTypes: z
      .array(z.string().regex(/^[a-z0-9-]+(\/[a-z0-9-]+)*(\/\*)?$/))
      .max(LEASELESS_TYPES_MAX)
      .optional(),
    /** Absent: everything is kept. */
    retention: RetentionPolicy.optional(),
  })
  .meta({ id: 'TenantSettings' });
export type TenantSettings = z.infer<typeof TenantSettings>;
