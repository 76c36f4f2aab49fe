import { z } from 'zod';
import { identifier } from './identifiers';
import { COUNTER_MAX, RESERVATION_LEASE_MS_DEFAULT, RESERVATION_LEASE_MS_MAX, RESERVATION_LEASE_MS_MIN, RUNNER_SLOTS_MAX } from './limits';
import { Runner } from './resources';
import { JsonRecord } from './wire-json';

// What crosses the wire about runners, their jobs and the places that are held while one is made.
const time = z.iso.datetime();
const name = z.string().min(1).max(1_000);

/** One page of a list; its cursor belongs to the list and filter it came from. */
const cursor = z.string().nullable().meta({ description: 'Of the next page; null at the end' });

export const RunnerList = z.object({ runners: z.array(Runner), cursor }).meta({ id: 'RunnerList' });
export type RunnerList = z.infer<typeof RunnerList>;

/** The record of a launched job, as whoever launched it tells. */
export const SaveRunnerJob = z
  .strictObject({
    commandId: identifier.meta({ description: 'A command of the run' }),
    jobId: identifier.optional().meta({ description: 'The id planned with the dispatch intent; a repeat finds its first try' }),
    launcher: identifier.default('external').meta({ description: 'Which kind of launcher made it; reconciliation asks by it' }),
    jobName: name.meta({ description: 'What an operator looks for: a Job’s name, a process id' }),
    attemptId: identifier.optional(),
    runnerId: identifier.optional(),
    namespace: name.optional(),
    managerUrl: name.optional(),
    image: name.optional(),
    sourceCommit: name.optional(),
    serviceAccountName: name.optional(),
    payloadHash: identifier
      .optional()
      .meta({ description: 'What a repeat is compared by; absent: a hash of everything here but the result' }),
    result: JsonRecord.optional().meta({ description: 'Free-form status; stored redacted' }),
  })
  .meta({ id: 'SaveRunnerJob' });
export type SaveRunnerJob = z.input<typeof SaveRunnerJob>;

export const RunnerJob = z
  .object({
    id: z.string(),
    tenantId: z.string(),
    runId: z.string(),
    commandId: z.string(),
    intentId: z.string().nullable(),
    launcher: z.string(),
    jobName: z.string(),
    idempotencyKey: z.string().nullable(),
    payloadHash: z.string().nullable(),
    attemptId: z.string().nullable(),
    runnerId: z.string().nullable(),
    namespace: z.string().nullable(),
    managerUrl: z.string().nullable(),
    image: z.string().nullable(),
    sourceCommit: z.string().nullable(),
    serviceAccountName: z.string().nullable(),
    result: JsonRecord,
    createdAt: time,
    updatedAt: time,
    lastCheckedAt: time,
    settledAt: time.nullable().meta({ description: 'Since when nothing is left to reconcile' }),
  })
  .meta({ id: 'RunnerJob' });
export type RunnerJob = z.infer<typeof RunnerJob>;

export const SavedRunnerJob = z.object({ job: RunnerJob, replayed: z.boolean() }).meta({ id: 'SavedRunnerJob' });
export type SavedRunnerJob = z.infer<typeof SavedRunnerJob>;
export const RunnerJobList = z.object({ jobs: z.array(RunnerJob), cursor }).meta({ id: 'RunnerJobList' });
export type RunnerJobList = z.infer<typeof RunnerJobList>;
export const MergeRunnerJobResult = z
  .strictObject({ patch: JsonRecord.meta({ description: 'Merged into the result at its top level' }) })
  .meta({ id: 'MergeRunnerJobResult' });

const leaseMs = z
  .int()
  .min(RESERVATION_LEASE_MS_MIN)
  .max(RESERVATION_LEASE_MS_MAX)
  .default(RESERVATION_LEASE_MS_DEFAULT)
  .meta({ description: 'How long the place is held unless it is renewed' });

/** "May I make a runner?": a place among those that a key has. */
export const ReserveRunnerSlot = z
  .strictObject({
    key: identifier.meta({ description: 'What the limit is for: a backend profile, a cluster' }),
    limit: z.int().min(1).max(RUNNER_SLOTS_MAX).default(1).meta({ description: 'Runners and creations under way, together' }),
    owner: identifier.meta({ description: 'Names this one attempt and is never used for another; a repeat with it finds its place' }),
    leaseMs,
    backendProfile: identifier.optional().meta({ description: 'Count the live runs of this profile too' }),
    runId: identifier.optional().meta({ description: 'The run that the runner is for: it is not counted against itself' }),
  })
  .meta({ id: 'ReserveRunnerSlot' });
export type ReserveRunnerSlot = z.input<typeof ReserveRunnerSlot>;

/** A held place; slot, owner and epoch together say which hold is meant. */
export const RunnerSlot = z
  .object({ key: z.string(), slot: z.int(), owner: z.string(), epoch: z.int(), remainingMs: z.int() })
  .meta({ id: 'RunnerSlot' });
export type RunnerSlot = z.infer<typeof RunnerSlot>;

export const HeldSlot = z
  .strictObject({ key: identifier, slot: z.int().min(1).max(RUNNER_SLOTS_MAX), owner: identifier, epoch: z.int().min(1).max(COUNTER_MAX) })
  .meta({ id: 'HeldSlot' });
export type HeldSlot = z.infer<typeof HeldSlot>;
export const RenewRunnerSlot = HeldSlot.extend({ leaseMs }).meta({ id: 'RenewRunnerSlot' });
export type RenewRunnerSlot = z.input<typeof RenewRunnerSlot>;
export const RenewedSlot = z.object({ remainingMs: z.int() }).meta({ id: 'RenewedSlot' });
export const ReleasedSlot = z
  .object({ released: z.boolean().meta({ description: 'False: the place was no longer held under this epoch' }) })
  .meta({ id: 'ReleasedSlot' });
