import { z } from 'zod';
import { NewRunEvent, Outcome, RunEvent } from './events';
import { identifier } from './identifiers';
import {
  APPEND_EVENTS_MAX,
  CANCEL_GRACE_MS_MAX,
  CLAIM_LEASE_MS_DEFAULT,
  CLAIM_LEASE_MS_MAX,
  CLAIM_LEASE_MS_MIN,
  COUNTER_MAX,
  REASON_CODE_POINTS_MAX,
  RUN_ATTEMPTS_MAX,
  RUN_DURATION_MS_MAX,
  RUN_DURATION_MS_MIN,
} from './limits';
import {
  CANCEL_STAGES,
  CANCEL_TARGET_KINDS,
  COMMAND_STATES,
  DISPATCH_OUTCOMES,
  INTENT_STATES,
  RUN_STATES,
  RUNNER_LOST_POLICIES,
  SESSION_STATES,
  STORAGE_KINDS,
  TERMINAL_STATUSES,
} from './states';
import { Json, JsonRecord } from './wire-json';

// What crosses the wire, both ways. Routes, client and library inputs share these shapes. Times are RFC 3339 UTC with milliseconds.
const time = z.iso.datetime();
const name = z.string().min(1).max(200);

/** A time that reads back as it was written: the wire has four digits for its year in UTC, and PostgreSQL no year 0. */
function isWireYear(text: string): boolean {
  const year = new Date(text).getUTCFullYear();
  return year >= 1 && year <= 9999;
}

/** The session a run belongs to, as its creator names it. */
export const SessionRef = z
  .strictObject({
    sessionId: identifier,
    conversationId: identifier.nullish(),
    threadId: identifier.nullish(),
    metadata: JsonRecord.optional(),
    expiresAt: z.iso.datetime({ offset: true }).refine(isWireYear, 'must lie in the years 1 to 9999').nullish(),
    ttlSeconds: z.int().min(1).max(31_536_000).nullish(),
  })
  .meta({ id: 'SessionRef' });
export type SessionRef = z.infer<typeof SessionRef>;

// No defaults are filled in here: a run is compared with a repeat by what its creator said, and a default of a later release must not change that.
export const CreateRun = z
  .strictObject({
    projectId: identifier,
    backendProfile: identifier.meta({ description: 'Which backend program runs it; the operator configures profiles' }),
    providerId: identifier.optional().meta({ description: 'Absent: `default`' }),
    workspaceRef: JsonRecord.optional().meta({ description: '`path` names the workspace folder below the configured root' }),
    sessionRef: SessionRef.nullish(),
    resourceBundleRef: JsonRecord.nullish(),
    executionPolicy: JsonRecord.optional(),
    traceSink: Json.nullish(),
    onRunnerLost: z.enum(RUNNER_LOST_POLICIES).optional(),
    maxAttempts: z.int().min(1).max(RUN_ATTEMPTS_MAX).optional(),
    maxDurationMs: z
      .int()
      .min(RUN_DURATION_MS_MIN)
      .max(RUN_DURATION_MS_MAX)
      .optional()
      .meta({ description: 'From the first claim, over all runners; then the run is cancelled with the failure kind `timeout`' }),
  })
  .meta({ id: 'CreateRun' });
export type CreateRun = z.input<typeof CreateRun>;

export const Dispatch = z
  .strictObject({ kind: z.literal('runner-job').default('runner-job'), input: JsonRecord.default({}) })
  .meta({ id: 'Dispatch' });
export type Dispatch = z.input<typeof Dispatch>;

export const CreateCommand = z
  .strictObject({
    type: z
      .string()
      .regex(/^[a-z0-9-]{1,64}$/, 'lower-case letters, digits and hyphens, at most 64')
      .meta({ description: '`turn`, or a name of your own' }),
    payload: JsonRecord,
    dispatch: Dispatch.nullish().meta({ description: 'Ask the dispatcher to launch a runner for this command' }),
  })
  .meta({ id: 'CreateCommand' });
export type CreateCommand = z.input<typeof CreateCommand>;

export const RunFailure = z.object({ kind: z.string(), message: z.string().nullable() }).meta({ id: 'RunFailure' });

// Fields that came later have a default: a client of this release must read an answer of the one before, while both are being served.
export const Run = z
  .object({
    id: z.string(),
    tenantId: z.string(),
    projectId: z.string(),
    sessionId: z.string().nullable(),
    sessionRef: JsonRecord.nullable(),
    workspaceRef: JsonRecord,
    resourceBundleRef: JsonRecord.nullable(),
    providerId: z.string(),
    backendProfile: z.string(),
    executionPolicy: JsonRecord,
    traceSink: Json.nullable(),
    status: z.enum(RUN_STATES),
    failure: RunFailure.nullable(),
    onRunnerLost: z.enum(RUNNER_LOST_POLICIES),
    maxAttempts: z.int(),
    attempts: z.int().meta({ description: 'How often a runner has taken the run over, or was launched in vain' }),
    maxDurationMs: z.int().nullable().default(null),
    startedAt: time.nullable().default(null).meta({ description: 'When it was first claimed' }),
    durationRemainingMs: z
      .int()
      .nullable()
      .default(null)
      .meta({ description: 'Null where there is no limit, before the first claim and after the end' }),
    claimedBy: z.string().nullable(),
    claimEpoch: z.int(),
    leaseRemainingMs: z.int().nullable(),
    lastEventSeq: z.int(),
    lastCommandSeq: z.int(),
    cancel: z
      .object({ requestId: z.string(), epoch: z.int(), reason: z.string(), requestedAt: time, deadlineAt: time.nullable() })
      .nullable(),
    createdAt: time,
    updatedAt: time,
    finishedAt: time.nullable(),
    eventsPrunedAt: time
      .nullable()
      .default(null)
      .meta({ description: 'Set when retention has archived and removed the events of the run' }),
  })
  .meta({ id: 'Run' });
export type Run = z.infer<typeof Run>;

export const DispatchIntent = z
  .object({
    id: z.string(),
    runId: z.string(),
    commandId: z.string(),
    kind: z.string(),
    input: JsonRecord,
    state: z.enum(INTENT_STATES),
    generation: z.int(),
    attempts: z.int(),
    owner: z.string().nullable(),
    readyAt: time,
    lastError: z.string().nullable(),
    runnerJobId: z.string(),
    dispatchOutcome: z.enum(DISPATCH_OUTCOMES).nullable(),
    actualRunnerJobId: z.string().nullable(),
    activeRunnerId: z.string().nullable(),
    createdAt: time,
    updatedAt: time,
    finishedAt: time.nullable(),
  })
  .meta({ id: 'DispatchIntent' });
export type DispatchIntent = z.infer<typeof DispatchIntent>;

export const Command = z
  .object({
    id: z.string(),
    runId: z.string(),
    sessionId: z.string().nullable(),
    seq: z.int(),
    type: z.string(),
    payload: JsonRecord,
    idempotencyKey: z.string().optional(),
    targetCommandId: z.string().nullable(),
    state: z.enum(COMMAND_STATES),
    failure: RunFailure.nullable(),
    cancel: z
      .object({ requestId: z.string(), epoch: z.int(), reason: z.string(), requestedAt: time, deadlineAt: time.nullable() })
      .nullable(),
    createdAt: time,
    updatedAt: time,
    acknowledgedAt: time.nullable(),
    finishedAt: time.nullable(),
  })
  .meta({ id: 'Command' });
export type Command = z.infer<typeof Command>;

/** Where a session's working state lies. `version` moves with each change of it, and is named by whoever reports that it is gone. */
export const SessionStorage = z
  .object({
    kind: z.enum(STORAGE_KINDS),
    name: z.string().nullable().meta({ description: 'Of the volume claim; of a folder its path below the storage root' }),
    namespace: z.string().nullable(),
    phase: z.string().nullable(),
    sizeBytes: z.int().nullable(),
    filesCount: z.int().nullable(),
    sha256: z.string().nullable(),
    rolloutSubdir: z.string().meta({ description: 'Folder in the storage where the backend keeps its rollouts' }),
    updatedAt: time.nullable(),
    evictedAt: time.nullable(),
    version: z.int(),
    evictionAttempts: z.int(),
    evictionError: z.string().nullable().meta({ description: 'Why the last attempt to delete expired storage failed' }),
  })
  .meta({ id: 'SessionStorage' });
export type SessionStorage = z.infer<typeof SessionStorage>;

export const Session = z
  .object({
    sessionId: z.string(),
    tenantId: z.string(),
    projectId: z.string().nullable().meta({ description: 'Null until its creator or its first run names one; then it is the boundary' }),
    backendProfile: z.string().nullable(),
    conversationId: z.string().nullable(),
    threadId: z.string().nullable(),
    metadata: JsonRecord,
    title: z.string().nullable(),
    executionState: z.enum(SESSION_STATES),
    activeRunId: z.string().nullable(),
    activeCommandId: z.string().nullable(),
    lastRunId: z.string().nullable(),
    lastCommandId: z.string().nullable(),
    terminalStatus: z.string().nullable(),
    failureKind: z.string().nullable(),
    version: z.int(),
    summary: JsonRecord,
    createdAt: time,
    updatedAt: time,
    lastActivityAt: time,
    expiresAt: time.nullable(),
    ttlSeconds: z.int().nullable(),
    storage: SessionStorage,
  })
  .meta({ id: 'Session' });
export type Session = z.infer<typeof Session>;

export const CreatedRun = z.object({ run: Run, replayed: z.boolean() }).meta({ id: 'CreatedRun' });
export const CreatedCommand = z
  .object({ command: Command, intent: DispatchIntent.nullable(), replayed: z.boolean() })
  .meta({ id: 'CreatedCommand' });
export const ClaimRun = z
  .strictObject({
    runnerId: identifier.meta({ description: 'One incarnation of a runner: a new one for each process start' }),
    leaseMs: z.int().min(CLAIM_LEASE_MS_MIN).max(CLAIM_LEASE_MS_MAX).default(CLAIM_LEASE_MS_DEFAULT),
  })
  .meta({ id: 'ClaimRun' });
export type ClaimRun = z.input<typeof ClaimRun>;

export const ClaimedRun = z
  .object({
    run: Run,
    epoch: z.int(),
    leaseRemainingMs: z.int(),
    durationRemainingMs: z.int().nullable().default(null),
    commands: z.array(Command),
    serverTime: time,
  })
  .meta({ id: 'ClaimedRun' });
export type ClaimedRun = z.infer<typeof ClaimedRun>;

const epoch = z.int().min(1).max(COUNTER_MAX);
export const Heartbeat = z
  .strictObject({
    epoch,
    leaseMs: z.int().min(CLAIM_LEASE_MS_MIN).max(CLAIM_LEASE_MS_MAX).default(CLAIM_LEASE_MS_DEFAULT),
    commandsAfterSeq: z.int().min(0).max(COUNTER_MAX).default(0),
  })
  .meta({ id: 'Heartbeat' });
export type Heartbeat = z.input<typeof Heartbeat>;

/** `stop` says: the run has ended, put the tools down. */
export const HeartbeatAnswer = z
  .object({
    runStatus: z.enum(RUN_STATES),
    stop: z.boolean(),
    leaseRemainingMs: z.int(),
    durationRemainingMs: z
      .int()
      .nullable()
      .default(null)
      .meta({ description: 'Until the server cancels the run as `timeout`; null: no limit' }),
    cancel: z.object({ requestId: z.string(), reason: z.string(), deadlineRemainingMs: z.int().nullable() }).nullable(),
    cancelledCommands: z.array(z.string()).meta({ description: 'Open commands whose cancel has been requested' }),
    commands: z.array(Command).meta({ description: 'Open commands after commandsAfterSeq' }),
    serverTime: time,
  })
  .meta({ id: 'HeartbeatAnswer' });
export type HeartbeatAnswer = z.infer<typeof HeartbeatAnswer>;

export const AppendEvents = z
  .strictObject({
    epoch,
    producerSequence: z
      .int()
      .min(1)
      .max(COUNTER_MAX)
      .optional()
      .meta({ description: '1, 2, 3 … per epoch and call; makes a repeated call return the stored events' }),
    events: z.array(NewRunEvent).min(1).max(APPEND_EVENTS_MAX),
  })
  .meta({ id: 'AppendEvents' });
export type AppendEvents = z.infer<typeof AppendEvents>;

export const AppendedEvents = z
  .object({ firstSeq: z.int(), lastSeq: z.int(), eventIds: z.array(z.string()), replayed: z.boolean() })
  .meta({ id: 'AppendedEvents' });
export type AppendedEvents = z.infer<typeof AppendedEvents>;

export const AckCommand = z.strictObject({ epoch }).meta({ id: 'AckCommand' });
export const FinishCommand = z.strictObject({ epoch, outcome: Outcome }).meta({ id: 'FinishCommand' });
export const FinishRun = z
  .strictObject({
    epoch,
    outcome: Outcome,
    commandId: identifier.optional().meta({ description: 'Also finish this command with the same outcome, in the same transaction' }),
  })
  .meta({ id: 'FinishRun' });
export const AcknowledgeCancel = z
  .strictObject({ epoch, stage: z.enum(['delivered', 'aborting']), commandId: identifier.optional() })
  .meta({ id: 'AcknowledgeCancel' });

export const Cancel = z
  .strictObject({
    reason: z
      .string()
      .max(REASON_CODE_POINTS_MAX * 4)
      .default('cancel requested'),
    graceMs: z.int().min(0).max(CANCEL_GRACE_MS_MAX).optional().meta({ description: 'How long the runner may take to stop; default 30 s' }),
    immediate: z.boolean().default(false).meta({ description: 'End at once, without waiting for the runner' }),
  })
  .meta({ id: 'Cancel' });
export type Cancel = z.input<typeof Cancel>;

export const CancelRequest = z
  .object({
    id: z.string(),
    targetKind: z.enum(CANCEL_TARGET_KINDS),
    targetId: z.string(),
    runId: z.string().nullable(),
    commandId: z.string().nullable(),
    sessionId: z.string().nullable(),
    taskId: z.string().nullable(),
    reason: z.string(),
    requestedBy: z.string().nullable(),
    epoch: z.int(),
    stage: z.enum(CANCEL_STAGES),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: 'CancelRequest' });
export type CancelRequest = z.infer<typeof CancelRequest>;

export const RegisterRunner = z
  .strictObject({
    runId: identifier.optional(),
    attemptId: identifier.optional(),
    backendProfile: identifier.optional(),
    placement: name.optional(),
    sourceCommit: name.optional(),
    metadata: JsonRecord.optional(),
  })
  .meta({ id: 'RegisterRunner' });
export type RegisterRunner = z.infer<typeof RegisterRunner>;

export const Runner = z
  .object({
    id: z.string(),
    runId: z.string().nullable(),
    attemptId: z.string().nullable(),
    backendProfile: z.string().nullable(),
    placement: z.string().nullable(),
    sourceCommit: z.string().nullable(),
    metadata: JsonRecord,
    registeredAt: time,
    heartbeatAt: time.meta({ description: 'Of the last registration or registry heartbeat' }),
    lastSeenAt: time.meta({ description: 'Of these and its renewals of leases, the latest' }),
  })
  .catchall(Json)
  .meta({ id: 'Runner', description: 'The keys of `metadata` stand beside the fields too, below them' });
export type Runner = z.infer<typeof Runner>;

/** What became of a run, in one answer. */
export const RunResult = z
  .object({
    runId: z.string(),
    status: z.enum(RUN_STATES),
    finished: z.boolean(),
    failure: RunFailure.nullable(),
    lastAssistantMessage: z.string().nullable(),
    usage: z.array(
      z.object({
        model: z.string(),
        inputTokens: z.int(),
        outputTokens: z.int(),
        costMicros: z.int().nullable(),
        currency: z.string().nullable(),
      }),
    ),
    lastEventSeq: z.int(),
  })
  .meta({ id: 'RunResult' });
export type RunResult = z.infer<typeof RunResult>;

export const FeedEvent = z
  .object({
    cursor: z.string(),
    eventId: z.string(),
    stream: z.enum(['run', 'session']),
    streamId: z.string(),
    sequence: z.int(),
    type: z.string(),
    tenantId: z.string(),
    projectId: z.string().nullable(),
    sessionId: z.string().nullable(),
    runId: z.string().nullable(),
    commandId: z.string().nullable(),
    time,
    data: JsonRecord,
  })
  .meta({ id: 'FeedEvent' });
export type FeedEvent = z.infer<typeof FeedEvent>;

export const FeedPage = z
  .object({
    events: z.array(FeedEvent),
    cursor: z.string().meta({ description: 'Give it back as `after`' }),
    head: z.string().meta({ description: 'Everything up to here is in the feed, nothing can appear before it any more' }),
    more: z.boolean(),
  })
  .meta({ id: 'FeedPage' });
export type FeedPage = z.infer<typeof FeedPage>;

// Lists and composed answers.

export const CommandList = z.object({ commands: z.array(Command) }).meta({ id: 'CommandList' });
export const CancelledRun = z.object({ run: Run, request: CancelRequest.nullable(), changed: z.boolean() }).meta({ id: 'CancelledRun' });
export const CancelledCommand = z
  .object({ command: Command, request: CancelRequest.nullable(), changed: z.boolean() })
  .meta({ id: 'CancelledCommand' });
export const CancelledSession = z
  .object({ sessionId: z.string(), run: Run.nullable(), request: CancelRequest.nullable(), changed: z.boolean() })
  .meta({ id: 'CancelledSession', description: '`run: null`: nothing ran in the session' });
export const CancelRequestPage = z
  .object({ requests: z.array(CancelRequest), cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end' }) })
  .meta({ id: 'CancelRequestPage' });
export const CancelProgress = z.object({ stage: z.enum(CANCEL_STAGES) }).meta({ id: 'CancelProgress' });

export const RunEventPage = z
  .object({
    events: z.array(RunEvent),
    lastSeq: z.int().meta({ description: 'Of the run, not of this page' }),
    terminalSeq: z.int().nullable().meta({ description: 'Sequence of terminal_status once the run has ended' }),
    status: z.enum(RUN_STATES),
  })
  .meta({ id: 'RunEventPage' });
export type RunEventPage = z.infer<typeof RunEventPage>;

/** The last frame of a followed run. */
export const StreamEnd = z.object({ status: z.enum(TERMINAL_STATUSES), terminalSeq: z.int() });
export type StreamEnd = z.infer<typeof StreamEnd>;

/** RFC 9457, with the library's code and the original's failureKind. */
export const Problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    instance: z.string().optional(),
    code: z.string(),
    failureKind: z.string(),
    retryable: z.boolean(),
    data: Json.optional(),
    requestId: z.string().optional(),
  })
  .meta({ id: 'Problem' });
export type Problem = z.infer<typeof Problem>;

export const SCOPES = [
  'runs:read',
  'runs:write',
  'runner',
  'sessions:read',
  'sessions:write',
  'approvals:resolve',
  'queue:read',
  'queue:write',
  'feed:read',
  'admin',
  'operator',
] as const;
export type Scope = (typeof SCOPES)[number];
