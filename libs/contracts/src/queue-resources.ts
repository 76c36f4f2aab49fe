import { z } from 'zod';
import { failureKind } from './events';
import { RunExplanation } from './explanation';
import { identifier } from './identifiers';
import {
  CANCEL_GRACE_MS_MAX,
  CLAIM_LEASE_MS_DEFAULT,
  CLAIM_LEASE_MS_MAX,
  CLAIM_LEASE_MS_MIN,
  COUNTER_MAX,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  LIST_ROWS_MAX,
  QUEUE_ATTEMPTS_MAX,
  QUEUE_BATCH_ROWS_MAX,
  QUEUE_LANE_DEFAULT,
  QUEUE_LIMIT_MAX,
  QUEUE_PRIORITY_MAX,
  QUEUE_REFERENCES_MAX,
  QUEUE_RELEASE_DELAY_MS_MAX,
  QUEUE_TITLE_CODE_POINTS_MAX,
  REASON_CODE_POINTS_MAX,
  WAIT_SECONDS_MAX,
} from './limits';
import { AdmittedTurn } from './admission';
import { CancelRequest, Command, DispatchIntent, Run, SessionRef } from './resources';
import { QUEUE_ATTEMPT_STATES, QUEUE_TASK_STATES } from './states';
import { JsonRecord } from './wire-json';

// Queue tasks as they cross the wire. Times are RFC 3339 UTC with milliseconds.

const time = z.iso.datetime();
const version = z.int().min(0);
const epoch = z.int().min(1).max(COUNTER_MAX);
const leaseMs = z.int().min(CLAIM_LEASE_MS_MIN).max(CLAIM_LEASE_MS_MAX).default(CLAIM_LEASE_MS_DEFAULT);
const text = (codePointsMax: number) => z.string().max(codePointsMax * 4); // stored cut to the code points
const failureMessage = text(FAILURE_MESSAGE_CODE_POINTS_MAX).nullish();
const runAt = z.iso
  .datetime({ offset: true })
  .refine((given) => new Date(given).getUTCFullYear() >= 1 && new Date(given).getUTCFullYear() <= 9999, 'must lie in the years 1 to 9999');

/** Where the session of a task is read. */
export const sessionPathOf = (sessionId: string): string => `/v1/sessions/${encodeURIComponent(sessionId)}`;

// A repeat is compared by what defines the work: title, priority, metadata, run_at and maxAttempts may differ and stay as they were.
export const CreateQueueTask = z
  .strictObject({
    projectId: identifier,
    queue: identifier,
    lane: identifier.default(QUEUE_LANE_DEFAULT).meta({ description: 'A line of its own in the queue, with a limit of its own' }),
    title: z
      .string()
      .min(1)
      .max(QUEUE_TITLE_CODE_POINTS_MAX * 4),
    priority: z.int().min(-QUEUE_PRIORITY_MAX).max(QUEUE_PRIORITY_MAX).default(0).meta({ description: 'Higher first' }),
    backendProfile: identifier
      .nullish()
      .meta({ description: 'With workspaceRef, providerId and executionPolicy: the task can be run as a run' }),
    providerId: identifier.nullish(),
    workspaceRef: JsonRecord.nullish(),
    sessionRef: SessionRef.nullish().meta({ description: 'Its run is a turn of this session' }),
    executionPolicy: JsonRecord.nullish(),
    resourceBundleRef: JsonRecord.nullish(),
    payload: JsonRecord,
    references: z.array(JsonRecord).max(QUEUE_REFERENCES_MAX).default([]),
    metadata: JsonRecord.default({}),
    runAt: runAt.nullish().meta({ description: 'Not before this time' }),
    maxAttempts: z.int().min(1).max(QUEUE_ATTEMPTS_MAX).optional(),
  })
  .meta({ id: 'CreateQueueTask' });
export type CreateQueueTask = z.input<typeof CreateQueueTask>;

export const CreateQueueTasks = z
  .strictObject({
    tasks: z
      .array(CreateQueueTask.extend({ idempotencyKey: identifier.optional() }))
      .min(1)
      .max(QUEUE_BATCH_ROWS_MAX),
  })
  .meta({ id: 'CreateQueueTasks' });
export type CreateQueueTasks = z.input<typeof CreateQueueTasks>;

/** One try at a task. */
export const QueueAttempt = z
  .object({
    taskId: z.string(),
    attemptId: z.string(),
    retryIndex: z.int(),
    state: z.enum(QUEUE_ATTEMPT_STATES),
    idempotencyKey: z.string().nullable(),
    reason: z.string().nullable(),
    payloadHash: z.string(),
    previousAttemptId: z.string().nullable(),
    runId: z.string().nullable(),
    commandId: z.string().nullable(),
    runnerJobId: z.string().nullable(),
    sessionId: z.string().nullable(),
    sessionPath: z.string().nullable(),
    owner: z.string().nullable().meta({ description: 'Who claimed it' }),
    epoch: z.int().nullable(),
    reservedForMs: z.int().nullable().meta({ description: 'Of a reservation: what is left of its time; negative when it is over' }),
    failure: z.object({ kind: z.string(), message: z.string().nullable() }).nullable(),
    createdAt: time,
    updatedAt: time,
    activatedAt: time.nullable(),
    terminalAt: time.nullable(),
  })
  .meta({ id: 'QueueAttempt' });
export type QueueAttempt = z.infer<typeof QueueAttempt>;

/** The newest attempt, as its task tells it. */
export const QueueAttemptRef = QueueAttempt.pick({
  attemptId: true,
  retryIndex: true,
  state: true,
  runId: true,
  commandId: true,
  runnerJobId: true,
  sessionId: true,
  sessionPath: true,
  failure: true,
}).meta({ id: 'QueueAttemptRef' });
export type QueueAttemptRef = z.infer<typeof QueueAttemptRef>;

/** A task as lists show it: without what the work is about. */
export const QueueTaskSummary = z
  .object({
    id: z.string(),
    projectId: z.string(),
    queue: z.string(),
    lane: z.string(),
    title: z.string(),
    priority: z.int(),
    state: z.enum(QUEUE_TASK_STATES),
    version,
    backendProfile: z.string().nullable(),
    sessionId: z.string().nullable(),
    sessionPath: z.string().nullable(),
    metadata: JsonRecord,
    holder: z.string().nullable().meta({ description: 'Who has claimed it' }),
    leaseRemainingMs: z.int().nullable(),
    attempts: z.int().meta({ description: 'Tries that counted' }),
    maxAttempts: z.int(),
    latestAttempt: QueueAttemptRef.nullable(),
    lastError: z.string().nullable(),
    runAt: time.nullable(),
    readyInMs: z.int().nullable().meta({ description: 'Of a pending task that waits for its time' }),
    createdAt: time,
    updatedAt: time,
    endedAt: time.nullable(),
    cancelledAt: time.nullable(),
    cancelReason: z.string().nullable(),
    reader: z
      .object({ readerId: z.string(), unread: z.boolean(), readVersion: version.nullable() })
      .nullable()
      .meta({ description: 'Where the call names a reader' }),
  })
  .meta({ id: 'QueueTaskSummary' });
export type QueueTaskSummary = z.infer<typeof QueueTaskSummary>;

export const QueueTask = QueueTaskSummary.omit({ reader: true })
  .extend({
    tenantId: z.string(),
    epoch: z.int(),
    providerId: z.string().nullable(),
    workspaceRef: JsonRecord.nullable(),
    sessionRef: JsonRecord.nullable(),
    executionPolicy: JsonRecord.nullable(),
    resourceBundleRef: JsonRecord.nullable(),
    payload: JsonRecord,
    payloadHash: z.string(),
    references: z.array(JsonRecord),
    idempotencyKey: z.string().nullable(),
  })
  .meta({ id: 'QueueTask' });
export type QueueTask = z.infer<typeof QueueTask>;

export const CreatedQueueTask = z.object({ task: QueueTask, replayed: z.boolean() }).meta({ id: 'CreatedQueueTask' });
export type CreatedQueueTask = z.infer<typeof CreatedQueueTask>;

export const CreatedQueueTasks = z
  .object({
    tasks: z
      .array(z.object({ taskId: z.string(), state: z.enum(QUEUE_TASK_STATES), version, replayed: z.boolean() }))
      .meta({ description: 'In the order of the call' }),
  })
  .meta({ id: 'CreatedQueueTasks' });
export type CreatedQueueTasks = z.infer<typeof CreatedQueueTasks>;

export const QueueTaskList = z
  .object({ tasks: z.array(QueueTaskSummary), cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end' }) })
  .meta({ id: 'QueueTaskList' });
export type QueueTaskList = z.infer<typeof QueueTaskList>;

export const QueueTaskChanges = z
  .object({
    tasks: z.array(QueueTaskSummary).meta({ description: 'In the order of their changes; each as it is now' }),
    cursor: z.string().meta({ description: 'Give it back as `after`' }),
    more: z.boolean(),
  })
  .meta({ id: 'QueueTaskChanges' });
export type QueueTaskChanges = z.infer<typeof QueueTaskChanges>;

export const QueueAttemptList = z
  .object({ taskId: z.string(), attempts: z.array(QueueAttempt).meta({ description: 'Newest first' }), cursor: z.string().nullable() })
  .meta({ id: 'QueueAttemptList' });
export type QueueAttemptList = z.infer<typeof QueueAttemptList>;

// Claims.

export const ClaimQueueTasks = z
  .strictObject({
    queue: identifier,
    lane: identifier.optional().meta({ description: 'Absent: all lanes of the queue, by priority' }),
    owner: identifier.meta({ description: 'One worker process: new at each of its starts' }),
    limit: z.int().min(1).max(QUEUE_BATCH_ROWS_MAX).default(1),
    leaseMs,
  })
  .meta({ id: 'ClaimQueueTasks' });
export type ClaimQueueTasks = z.input<typeof ClaimQueueTasks>;
export const ClaimQueueTasksBody = ClaimQueueTasks.extend({
  waitSeconds: z.int().min(0).max(WAIT_SECONDS_MAX).default(0).meta({ description: 'Answer when there is something, at the latest then' }),
}).meta({ id: 'ClaimQueueTasksBody' });

/** What its holder needs to work: the epoch is its right to it. */
export const ClaimedQueueTask = z
  .object({
    taskId: z.string(),
    tenantId: z.string(),
    projectId: z.string(),
    queue: z.string(),
    lane: z.string(),
    title: z.string(),
    priority: z.int(),
    epoch,
    attemptId: z.string(),
    retryIndex: z.int(),
    attempts: z.int(),
    maxAttempts: z.int(),
    leaseRemainingMs: z.int(),
    sessionId: z.string().nullable(),
    payload: JsonRecord,
    references: z.array(JsonRecord),
    metadata: JsonRecord,
    isRunnable: z.boolean().meta({ description: 'It has what a run needs' }),
  })
  .meta({ id: 'ClaimedQueueTask' });
export type ClaimedQueueTask = z.infer<typeof ClaimedQueueTask>;
export const ClaimedQueueTasks = z
  .object({ tasks: z.array(ClaimedQueueTask).meta({ description: 'In the order in which they should be worked off' }) })
  .meta({ id: 'ClaimedQueueTasks' });
export type ClaimedQueueTasks = z.infer<typeof ClaimedQueueTasks>;

const claim = { taskId: identifier, epoch };
export const RenewQueueTasks = z
  .strictObject({
    claims: z
      .array(z.strictObject(claim))
      .min(1)
      .max(QUEUE_BATCH_ROWS_MAX)
      .refine((given) => new Set(given.map(({ taskId }) => taskId)).size === given.length, 'names a task twice'),
    leaseMs,
  })
  .meta({ id: 'RenewQueueTasks' });
export type RenewQueueTasks = z.input<typeof RenewQueueTasks>;
export const RenewQueueTask = z.strictObject({ epoch, leaseMs }).meta({ id: 'RenewQueueTask' });
export type RenewQueueTask = z.input<typeof RenewQueueTask>;

/** How a claim ends; `released` gives the task back. */
export const SETTLEMENTS = ['completed', 'failed', 'blocked', 'released'] as const;
export type Settlement = (typeof SETTLEMENTS)[number];
const failure = { failureKind: failureKind.optional(), failureMessage };
const delayMs = z
  .int()
  .min(0)
  .max(QUEUE_RELEASE_DELAY_MS_MAX)
  .optional()
  .meta({ description: 'When it may be claimed again. Absent: at once, or after a back-off where a failure is told' });

const settlement = { outcome: z.enum(SETTLEMENTS), ...failure, delayMs };
function checkSettlement(
  { outcome, failureKind: kind, delayMs: delay }: { outcome: Settlement; failureKind?: string | undefined; delayMs?: number | undefined },
  ctx: z.RefinementCtx,
): void {
  const refuse = (path: string, message: string): void => ctx.addIssue({ code: 'custom', path: [path], message });
  if (outcome === 'completed' && kind !== undefined) refuse('failureKind', 'what is completed has not failed');
  if ((outcome === 'failed' || outcome === 'blocked') && kind === undefined) refuse('failureKind', 'failed and blocked need one');
  if (outcome !== 'released' && delay !== undefined) refuse('delayMs', 'only a released task comes again');
}

/** Released without a failure the try does not count; with one it does, and the last one fails the task. */
export const SettleQueueTask = z
  .strictObject({ epoch, ...settlement })
  .superRefine(checkSettlement)
  .meta({ id: 'SettleQueueTask' });
export type SettleQueueTask = z.input<typeof SettleQueueTask>;

export const SettleQueueTasks = z
  .strictObject({
    settlements: z
      .array(z.strictObject({ ...claim, ...settlement }).superRefine(checkSettlement))
      .min(1)
      .max(QUEUE_BATCH_ROWS_MAX)
      .refine((given) => new Set(given.map(({ taskId }) => taskId)).size === given.length, 'names a task twice'),
  })
  .meta({ id: 'SettleQueueTasks' });
export type SettleQueueTasks = z.input<typeof SettleQueueTasks>;

/** What became of one claim in a call about several. */
export const ClaimVerdict = z
  .object({
    taskId: z.string(),
    verdict: z.enum(['ok', 'replayed', 'not_found', 'claim_lost']),
    state: z.enum(QUEUE_TASK_STATES).nullable(),
    currentEpoch: z.int().nullable(),
    leaseRemainingMs: z.int().nullable(),
  })
  .meta({ id: 'ClaimVerdict' });
export type ClaimVerdict = z.infer<typeof ClaimVerdict>;
export const ClaimVerdicts = z
  .object({ claims: z.array(ClaimVerdict).meta({ description: 'In the order of the call' }) })
  .meta({ id: 'ClaimVerdicts' });
export type ClaimVerdicts = z.infer<typeof ClaimVerdicts>;

export const RenewedQueueTask = z.object({ taskId: z.string(), leaseRemainingMs: z.int() }).meta({ id: 'RenewedQueueTask' });
export type RenewedQueueTask = z.infer<typeof RenewedQueueTask>;
export const SettledQueueTask = z
  .object({ taskId: z.string(), state: z.enum(QUEUE_TASK_STATES), replayed: z.boolean() })
  .meta({ id: 'SettledQueueTask' });
export type SettledQueueTask = z.infer<typeof SettledQueueTask>;

// A task as a run.

export const RunQueueTask = z
  .strictObject({
    epoch: epoch.optional().meta({ description: 'Of the caller’s claim; absent: the task must be pending' }),
    dispatch: z.boolean().default(true).meta({ description: 'Ask the dispatcher to launch a runner' }),
  })
  .meta({ id: 'RunQueueTask' });
export type RunQueueTask = z.input<typeof RunQueueTask>;
export const RunningQueueTask = z
  .object({
    task: QueueTask,
    attempt: QueueAttempt,
    run: Run,
    command: Command,
    intent: DispatchIntent.nullable(),
    disposition: AdmittedTurn.shape.disposition,
  })
  .meta({ id: 'RunningQueueTask' });
export type RunningQueueTask = z.infer<typeof RunningQueueTask>;

export const CancelQueueTask = z
  .strictObject({
    reason: text(REASON_CODE_POINTS_MAX).min(1).default('cancel requested'),
    graceMs: z.int().min(0).max(CANCEL_GRACE_MS_MAX).optional(),
    immediate: z.boolean().default(false).meta({ description: 'End its run at once, without waiting for the runner' }),
  })
  .meta({ id: 'CancelQueueTask' });
export type CancelQueueTask = z.input<typeof CancelQueueTask>;
export const CancelledQueueTask = z
  .object({
    task: QueueTask,
    attempt: QueueAttempt.nullable().meta({ description: 'The attempt that ended with it' }),
    run: Run.nullable().meta({ description: 'Its run, which ends now or when its runner has stopped' }),
    request: CancelRequest.nullable(),
    changed: z.boolean(),
  })
  .meta({ id: 'CancelledQueueTask' });
export type CancelledQueueTask = z.infer<typeof CancelledQueueTask>;

export const ScheduleQueueTask = z
  .strictObject({ runAt: runAt.nullable().meta({ description: 'Null: as soon as possible' }), expectedVersion: version.optional() })
  .meta({ id: 'ScheduleQueueTask' });
export type ScheduleQueueTask = z.input<typeof ScheduleQueueTask>;
export const ChangedQueueTask = z.object({ task: QueueTask, changed: z.boolean() }).meta({ id: 'ChangedQueueTask' });
export type ChangedQueueTask = z.infer<typeof ChangedQueueTask>;

// Attempts of a dispatcher of the caller's own, and retries.

/** What is left out stays as it is. */
export const UpdateQueueAttempt = z
  .strictObject({
    attemptId: identifier.meta({ description: 'A new one begins an attempt, where none is active' }),
    expectedVersion: version.meta({ description: 'The task’s version that the caller has read' }),
    epoch: epoch.optional().meta({ description: 'Where the task is claimed' }),
    state: z.enum(QUEUE_ATTEMPT_STATES).exclude(['reserved']),
    runId: identifier.optional(),
    commandId: identifier.optional(),
    runnerJobId: identifier.optional(),
    sessionId: identifier.optional(),
    failureKind: failureKind.optional(),
    failureMessage,
  })
  .meta({ id: 'UpdateQueueAttempt' });
export type UpdateQueueAttempt = z.input<typeof UpdateQueueAttempt>;
export const UpdatedQueueAttempt = z
  .object({ task: QueueTask, attempt: QueueAttempt, changed: z.boolean() })
  .meta({ id: 'UpdatedQueueAttempt' });
export type UpdatedQueueAttempt = z.infer<typeof UpdatedQueueAttempt>;

export const ReserveQueueRetry = z
  .strictObject({ reason: text(REASON_CODE_POINTS_MAX).min(1), dryRun: z.boolean().default(false) })
  .meta({ id: 'ReserveQueueRetry' });
export type ReserveQueueRetry = z.input<typeof ReserveQueueRetry>;
export const QueueRetryReservation = z
  .object({
    task: QueueTask,
    attempt: QueueAttempt.nullable().meta({ description: 'Null for a dry run' }),
    retryIndex: z.int(),
    created: z.boolean(),
    replayed: z.boolean(),
    dryRun: z.boolean(),
  })
  .meta({ id: 'QueueRetryReservation' });
export type QueueRetryReservation = z.infer<typeof QueueRetryReservation>;

export const NoteReservationFailure = z.strictObject({ failureKind, failureMessage }).meta({ id: 'NoteReservationFailure' });
export type NoteReservationFailure = z.input<typeof NoteReservationFailure>;

export const ActivateQueueRetry = z
  .strictObject({
    state: z.enum(['running', 'failed', 'blocked']),
    commandId: identifier.nullish(),
    sessionId: identifier.nullish(),
    failureKind: failureKind.nullish(),
    failureMessage,
  })
  .refine(({ state, failureKind: kind }) => (state === 'running') === (kind == null), {
    path: ['failureKind'],
    error: 'failed and blocked need one, running has none',
  })
  .meta({ id: 'ActivateQueueRetry' });
export type ActivateQueueRetry = z.input<typeof ActivateQueueRetry>;
export const ActivatedQueueRetry = z
  .object({ task: QueueTask, attempt: QueueAttempt, activated: z.boolean() })
  .meta({ id: 'ActivatedQueueRetry' });
export type ActivatedQueueRetry = z.infer<typeof ActivatedQueueRetry>;

// Readers, lanes, numbers.

export const MarkQueueTasksRead = z
  .strictObject({ readerId: identifier, taskIds: z.array(identifier).min(1).max(LIST_ROWS_MAX) })
  .meta({ id: 'MarkQueueTasksRead' });
export type MarkQueueTasksRead = z.infer<typeof MarkQueueTasksRead>;
export const QueueReadCursor = z
  .object({ taskId: z.string(), readerId: z.string(), taskVersion: version, readAt: time })
  .meta({ id: 'QueueReadCursor' });
export type QueueReadCursor = z.infer<typeof QueueReadCursor>;
export const MarkedQueueTasks = z
  .object({ cursors: z.array(QueueReadCursor), unknown: z.array(z.string()).meta({ description: 'Ids that are no tasks of the tenant' }) })
  .meta({ id: 'MarkedQueueTasks' });
export type MarkedQueueTasks = z.infer<typeof MarkedQueueTasks>;

export const SetLaneLimit = z
  .strictObject({
    queue: identifier,
    lane: identifier.nullable().default(null).meta({ description: 'Null: the queue as a whole' }),
    maxRunning: z.int().min(1).max(QUEUE_LIMIT_MAX).nullable().meta({ description: 'Null: no limit' }),
  })
  .meta({ id: 'SetLaneLimit' });
export type SetLaneLimit = z.input<typeof SetLaneLimit>;
export const QueueLane = z
  .object({
    queue: z.string(),
    lane: z.string().nullable().meta({ description: 'Null: the queue as a whole' }),
    maxRunning: z.int().nullable(),
    running: z.int().nullable().meta({ description: 'Tasks that run, as the limit counts them; null where nothing is counted' }),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: 'QueueLane' });
export type QueueLane = z.infer<typeof QueueLane>;
export const QueueLaneList = z.object({ lanes: z.array(QueueLane), cursor: z.string().nullable() }).meta({ id: 'QueueLaneList' });
export type QueueLaneList = z.infer<typeof QueueLaneList>;

const counts = z.record(z.string(), z.int());
export const QueueStats = z
  .object({
    queue: z.string().nullable(),
    total: z.int(),
    byState: counts,
    byLane: counts,
    byProfile: counts,
    oldestPendingAt: time.nullable(),
    newestVersion: z.string().nullable().meta({ description: 'Grows with each change of a task; null where there is none' }),
    generatedAt: time,
  })
  .meta({ id: 'QueueStats' });
export type QueueStats = z.infer<typeof QueueStats>;

export const QueueCommander = z
  .object({
    queue: z.string().nullable(),
    readerId: z.string().nullable(),
    stats: QueueStats,
    tasks: z
      .array(QueueTaskSummary)
      .meta({ description: 'What wants a look: open, failed, blocked, or not seen by the reader; unread first' }),
    generatedAt: time,
  })
  .meta({ id: 'QueueCommander' });
export type QueueCommander = z.infer<typeof QueueCommander>;

/** Each has its sentence in libs/queue/src/task-explanation.ts and a test that makes it. */
export const TASK_CAUSES = [
  'ended',
  'can-be-retried',
  'retry-reserved',
  'retry-reservation-over',
  'waits-for-its-time',
  'backs-off',
  'lane-full',
  'queue-full',
  'waits-for-worker',
  'no-worker',
  'worked-on',
  'worker-lost',
  'run-under-way',
  'run-has-ended',
  'reported-by-others',
] as const;
export type TaskCause = (typeof TASK_CAUSES)[number];
export const TaskExplanation = z
  .strictObject({
    taskId: z.string(),
    cause: z.enum(TASK_CAUSES),
    isMoving: z.boolean().meta({ description: 'False where somebody or something has to be looked at' }),
    sentence: z.string(),
    nextChangeInMs: z.int().nullable().meta({ description: 'When the service acts by itself if nothing else happens; null: it does not' }),
    facts: JsonRecord,
    run: RunExplanation.nullable().meta({ description: 'Where a run works on it' }),
  })
  .meta({ id: 'TaskExplanation' });
export type TaskExplanation = z.infer<typeof TaskExplanation>;

export const NotedReservationFailure = z.object({ attempt: QueueAttempt, changed: z.boolean() }).meta({ id: 'NotedReservationFailure' });
export type NotedReservationFailure = z.infer<typeof NotedReservationFailure>;
