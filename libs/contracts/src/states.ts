/**
 * States and transitions as data. The arrays are the source of the TypeScript types; the database's enums repeat them
 * (tests/contract/schema.spec.ts compares), docs/state-machines.md is printed from the tables, `is…` questions are derived from them.
 * A table reads: from → to: the operations that do it.
 */
type Transitions<State extends string> = Readonly<Record<State, Partial<Record<State, readonly string[]>>>>;

/** Born `pending` by createRun; `claimed` by a runner; `cancelling` until the runner, a deadline or a dead lease ends it. */
export const RUN_STATES = ['pending', 'claimed', 'cancelling', 'completed', 'failed', 'blocked', 'cancelled'] as const;
export type RunState = (typeof RUN_STATES)[number];
export const RUN_TRANSITIONS = {
  pending: {
    claimed: ['claimRun'],
    failed: [
      'terminalizeDispatchIntent',
      'failExhaustedIntentsOnce',
      'failUnclaimedRunsOnce',
      'failUnclaimedJob',
      'withRunnerRetentionFence',
      'admitTurn',
    ],
    cancelled: ['cancelRun', 'admitTurn', 'cancelSession', 'cancelCommand', 'cancelOverdueRunsOnce'],
  },
  claimed: {
    pending: ['sweepLostRunnersOnce', 'withRunnerRetentionFence'],
    claimed: ['claimRun'],
    cancelling: ['cancelRun', 'admitTurn', 'cancelSession', 'cancelOverdueRunsOnce'],
    completed: ['finishRun'],
    failed: ['finishRun', 'sweepLostRunnersOnce', 'withRunnerRetentionFence', 'admitTurn'],
    blocked: ['finishRun'],
    cancelled: ['finishRun', 'cancelRun', 'cancelSession', 'cancelOverdueRunsOnce', 'sweepLostRunnersOnce'],
  },
  cancelling: {
    completed: ['finishRun'],
    failed: ['finishRun', 'withRunnerRetentionFence'],
    blocked: ['finishRun'],
    cancelled: ['finishRun', 'cancelRun', 'cancelSession', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce', 'admitTurn'],
  },
  completed: {},
  failed: {},
  blocked: {},
  cancelled: {},
} as const satisfies Transitions<RunState>;

export const COMMAND_STATES = ['pending', 'acknowledged', 'completed', 'failed', 'cancelled'] as const;
export type CommandState = (typeof COMMAND_STATES)[number];
export const COMMAND_TRANSITIONS = {
  pending: {
    acknowledged: ['ackCommand'],
    completed: ['finishCommand', 'closeRun'],
    failed: ['finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'closeRun'],
    cancelled: ['finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'closeRun'],
  },
  acknowledged: {
    pending: ['sweepLostRunnersOnce'],
    completed: ['finishCommand', 'closeRun'],
    failed: ['finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'closeRun'],
    cancelled: ['finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'closeRun'],
  },
  completed: {},
  failed: {},
  cancelled: {},
} as const satisfies Transitions<CommandState>;

/** `dispatching` is held by one dispatcher under a lease; `retry` waits for its back-off. */
export const INTENT_STATES = ['pending', 'dispatching', 'retry', 'dispatched', 'failed', 'cancelled'] as const;
export type IntentState = (typeof INTENT_STATES)[number];
export const INTENT_TRANSITIONS = {
  pending: {
    dispatching: ['claimDispatchIntents'],
    cancelled: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce'],
  },
  dispatching: {
    dispatching: ['claimDispatchIntents'],
    dispatched: ['completeDispatchIntent'],
    retry: ['retryDispatchIntent', 'deferDispatchIntent'],
    failed: ['terminalizeDispatchIntent', 'failExhaustedIntentsOnce'],
    cancelled: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce'],
  },
  retry: {
    dispatching: ['claimDispatchIntents'],
    cancelled: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce'],
  },
  dispatched: {},
  failed: {},
  cancelled: {},
} as const satisfies Transitions<IntentState>;

export const SESSION_STATES = ['idle', 'running', 'terminal'] as const;
export type SessionState = (typeof SESSION_STATES)[number];
export const SESSION_TRANSITIONS = {
  idle: { running: ['admitTurn', 'createCommand'] },
  running: { terminal: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce'] },
  terminal: { running: ['admitTurn', 'createCommand'] },
} as const satisfies Transitions<SessionState>;

/** `pending` until it ends, whether somebody has claimed it or not; a re-queue gives a failed one another try. */
export const SUBMISSION_STATES = ['pending', 'completed', 'failed'] as const;
export type SubmissionState = (typeof SUBMISSION_STATES)[number];
export const SUBMISSION_TRANSITIONS = {
  pending: {
    completed: ['endSubmission', 'settleSubmissions', 'startQueuedTurnsOnce'],
    failed: [
      'endSubmission',
      'settleSubmissions',
      'startQueuedTurnsOnce',
      'failExhaustedSubmissionsOnce',
      'deleteSession',
      'forkSession',
      'importSession',
    ],
  },
  completed: {},
  failed: { pending: ['requeueSubmission'] },
} as const satisfies Transitions<SubmissionState>;

/** Whether the submission at the head of a session waits, or is held by a worker. */
export const SUBMISSION_HEAD_STATES = ['waiting', 'claimed'] as const;
export type SubmissionHeadState = (typeof SUBMISSION_HEAD_STATES)[number];

export const CANCEL_STAGES = ['accepted', 'persisted', 'delivered', 'aborting', 'fenced', 'terminalized'] as const;
export type CancelStage = (typeof CANCEL_STAGES)[number];
export const CANCEL_STAGE_TRANSITIONS = {
  accepted: { persisted: ['cancelRun', 'admitTurn', 'cancelSession', 'cancelCommand', 'cancelOverdueRunsOnce', 'sweepLostRunnersOnce'] },
  persisted: {
    delivered: ['acknowledgeCancel'],
    aborting: ['acknowledgeCancel'],
    fenced: ['cancelRun', 'cancelSession', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce', 'admitTurn'],
    terminalized: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce'],
  },
  delivered: {
    aborting: ['acknowledgeCancel'],
    fenced: ['cancelRun', 'cancelSession', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce', 'admitTurn'],
    terminalized: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce'],
  },
  aborting: {
    fenced: ['cancelRun', 'cancelSession', 'cancelCommand', 'sweepCancelDeadlinesOnce', 'sweepLostRunnersOnce', 'admitTurn'],
    terminalized: ['closeRun', 'finishCommand', 'cancelCommand', 'sweepCancelDeadlinesOnce'],
  },
  fenced: { terminalized: ['closeRun', 'cancelCommand', 'sweepCancelDeadlinesOnce'] },
  terminalized: {},
} as const satisfies Transitions<CancelStage>;

/** How an approval stands. Born `pending` by its request; its time passing is no rejection. */
export const APPROVAL_STATES = ['pending', 'approved', 'rejected', 'expired', 'cancelled'] as const;
export type ApprovalState = (typeof APPROVAL_STATES)[number];
export const APPROVAL_TRANSITIONS = {
  pending: {
    approved: ['resolveApproval'],
    rejected: ['resolveApproval'],
    expired: ['expireRequestsOnce', 'closeRun', 'closeCommand'],
    cancelled: ['closeRun', 'closeCommand'],
  },
  approved: {},
  rejected: {},
  expired: {},
  cancelled: {},
} as const satisfies Transitions<ApprovalState>;

/** How a request for input stands. */
export const INPUT_STATES = ['pending', 'answered', 'declined', 'expired', 'cancelled'] as const;
export type InputState = (typeof INPUT_STATES)[number];
export const INPUT_TRANSITIONS = {
  pending: {
    answered: ['resolveInput'],
    declined: ['resolveInput'],
    expired: ['expireRequestsOnce', 'closeRun', 'closeCommand'],
    cancelled: ['closeRun', 'closeCommand'],
  },
  answered: {},
  declined: {},
  expired: {},
  cancelled: {},
} as const satisfies Transitions<InputState>;

export const CANCEL_TARGET_KINDS = ['run', 'command', 'session', 'task'] as const;
export type CancelTargetKind = (typeof CANCEL_TARGET_KINDS)[number];

export const RUNNER_LOST_POLICIES = ['fail', 'requeue'] as const;
export type RunnerLostPolicy = (typeof RUNNER_LOST_POLICIES)[number];

/** Why an open turn takes no steer, or that there is none. */
export const NOT_RECEIVABLE_REASONS = ['no-turn', 'turn-ended', 'cancelling', 'runner-lost', 'no-runner-coming'] as const;
export type NotReceivableReason = (typeof NOT_RECEIVABLE_REASONS)[number];

export const DISPATCH_OUTCOMES = ['created', 'adopted', 'active-runner'] as const;
export type DispatchOutcome = (typeof DISPATCH_OUTCOMES)[number];

/** How a run can end, in the words of its terminal state. */
export const TERMINAL_STATUSES = ['completed', 'failed', 'blocked', 'cancelled'] as const;
export type TerminalStatus = (typeof TERMINAL_STATUSES)[number];

/** Born `pending`. `running` has one active attempt: by a claim (owner, lease), a run, or a dispatcher of the caller's own. */
export const QUEUE_TASK_STATES = ['pending', 'running', 'completed', 'failed', 'blocked', 'cancelled'] as const;
export type QueueTaskState = (typeof QUEUE_TASK_STATES)[number];
export const QUEUE_TASK_TRANSITIONS = {
  pending: {
    pending: ['scheduleQueueTask'],
    running: ['claimQueueTasks', 'runQueueTask', 'updateQueueAttempt'],
    completed: ['updateQueueAttempt'],
    failed: ['updateQueueAttempt'],
    blocked: ['updateQueueAttempt'],
    cancelled: ['cancelQueueTask', 'updateQueueAttempt'],
  },
  running: {
    pending: ['settleQueueTasks', 'sweepQueueLeasesOnce'],
    running: ['runQueueTask', 'updateQueueAttempt'],
    completed: ['settleQueueTasks', 'settleAttemptsOnce', 'updateQueueAttempt'],
    failed: ['settleQueueTasks', 'sweepQueueLeasesOnce', 'settleAttemptsOnce', 'updateQueueAttempt'],
    blocked: ['settleQueueTasks', 'settleAttemptsOnce', 'updateQueueAttempt'],
    cancelled: ['cancelQueueTask', 'settleAttemptsOnce', 'updateQueueAttempt'],
  },
  completed: {},
  failed: {
    running: ['activateQueueRetry'],
    failed: ['activateQueueRetry'],
    blocked: ['activateQueueRetry'],
    cancelled: ['cancelQueueTask'],
  },
  blocked: {
    running: ['activateQueueRetry'],
    failed: ['activateQueueRetry'],
    blocked: ['activateQueueRetry'],
    cancelled: ['cancelQueueTask'],
  },
  cancelled: {},
} as const satisfies Transitions<QueueTaskState>;

/**
 * One try at a task. Born `reserved` by a retry request, `running` by a claim or a run, or in the state that a dispatcher of the caller's own
 * reports. `reserved`, `pending` and `running` are active: a task has at most one such attempt.
 */
export const QUEUE_ATTEMPT_STATES = ['reserved', 'pending', 'running', 'completed', 'failed', 'blocked', 'cancelled'] as const;
export type QueueAttemptState = (typeof QUEUE_ATTEMPT_STATES)[number];
export const QUEUE_ATTEMPT_BIRTHS: readonly QueueAttemptState[] = ['reserved', 'pending', 'running'];
export const QUEUE_ATTEMPT_TRANSITIONS = {
  reserved: {
    reserved: ['reserveQueueRetry', 'noteReservationFailure'],
    running: ['activateQueueRetry'],
    failed: ['activateQueueRetry', 'reserveQueueRetry', 'expireReservationsOnce'],
    blocked: ['activateQueueRetry'],
    cancelled: ['cancelQueueTask'],
  },
  pending: {
    pending: ['updateQueueAttempt'],
    running: ['updateQueueAttempt'],
    completed: ['updateQueueAttempt'],
    failed: ['updateQueueAttempt'],
    blocked: ['updateQueueAttempt'],
    cancelled: ['updateQueueAttempt', 'cancelQueueTask'],
  },
  running: {
    running: ['updateQueueAttempt', 'runQueueTask'],
    completed: ['settleQueueTasks', 'settleAttemptsOnce', 'updateQueueAttempt'],
    failed: ['settleQueueTasks', 'sweepQueueLeasesOnce', 'settleAttemptsOnce', 'updateQueueAttempt'],
    blocked: ['settleQueueTasks', 'settleAttemptsOnce', 'updateQueueAttempt'],
    cancelled: ['settleQueueTasks', 'settleAttemptsOnce', 'cancelQueueTask', 'updateQueueAttempt'],
  },
  completed: {},
  failed: {},
  blocked: {},
  cancelled: {},
} as const satisfies Transitions<QueueAttemptState>;

function finalStates<State extends string>(table: Transitions<State>): readonly State[] {
  return (Object.keys(table) as State[]).filter((state) => Object.keys(table[state]).length === 0);
}
const has = <T extends string>(list: readonly T[], state: string): boolean => (list as readonly string[]).includes(state);

export const FINAL_RUN_STATES = finalStates<RunState>(RUN_TRANSITIONS);
export const OPEN_RUN_STATES = RUN_STATES.filter((state) => !has(FINAL_RUN_STATES, state));
export const FINAL_COMMAND_STATES = finalStates<CommandState>(COMMAND_TRANSITIONS);
export const OPEN_COMMAND_STATES = COMMAND_STATES.filter((state) => !has(FINAL_COMMAND_STATES, state));
export const OPEN_INTENT_STATES = INTENT_STATES.filter((state) => !has(finalStates<IntentState>(INTENT_TRANSITIONS), state));

export const FINAL_QUEUE_ATTEMPT_STATES = finalStates<QueueAttemptState>(QUEUE_ATTEMPT_TRANSITIONS);
/** Nobody works on such a task any more; `failed` and `blocked` may be retried, the others are final. */
export const ENDED_QUEUE_TASK_STATES = QUEUE_TASK_STATES.filter((state) => has(TERMINAL_STATUSES, state));

export const isEndedTask = (state: QueueTaskState): boolean => has(ENDED_QUEUE_TASK_STATES, state);
export const isFinalAttempt = (state: QueueAttemptState): boolean => has(FINAL_QUEUE_ATTEMPT_STATES, state);
/** Whether the operation may take an attempt from one state to the other. */
export const attemptMayGo = (from: QueueAttemptState, to: QueueAttemptState, by: string): boolean => {
  const operations = (QUEUE_ATTEMPT_TRANSITIONS[from] as Partial<Record<QueueAttemptState, readonly string[]>>)[to];
  return operations !== undefined && has(operations, by);
};

export const isFinalRun = (state: RunState): state is TerminalStatus => has(FINAL_RUN_STATES, state);
export const isFinalCommand = (state: CommandState): boolean => has(FINAL_COMMAND_STATES, state);
export const isOpenIntent = (state: IntentState): boolean => has(OPEN_INTENT_STATES, state);

/** A command has no state `blocked`: the report closes it as failed and keeps the failure kind. */
export function commandStateOf(outcome: TerminalStatus): 'completed' | 'failed' | 'cancelled' {
  return outcome === 'blocked' ? 'failed' : outcome;
}

/** What a session's driver does, as its log tells. `attention_required` says that a recovery needs a person. */
export const DRIVER_STATES = [
  'idle',
  'turn_started',
  'step_preparing',
  'model_streaming',
  'tool_running',
  'approval_waiting',
  'input_waiting',
  'step_completed',
  'turn_completed',
  'attention_required',
] as const;
export type DriverState = (typeof DRIVER_STATES)[number];

/**
 * Conditions of DRIVER_MOVES, read when the event has changed the snapshot's fields: `asked` (the id was open), `at-work` (the driver was neither
 * idle nor at the end of a turn), `waits-for-input`, `turn-over` (the driver was in that state), `own-turn` (the active turn is the event's).
 */
export type DriverCondition =
  'asked' | 'at-work' | 'waits-for-input' | 'turn-over' | 'own-turn' | 'approvals-open' | 'inputs-open' | 'inbox-empty' | 'attention';

/** Which event leads where, from any state; the first row of an event whose conditions all hold. None: the state stays, as with any other event. */
export const DRIVER_MOVES: readonly { on: string; when: readonly DriverCondition[]; to: DriverState }[] = [
  { on: 'turn/start', when: [], to: 'turn_started' },
  { on: 'step/start', when: [], to: 'step_preparing' },
  { on: 'request/context', when: [], to: 'model_streaming' },
  { on: 'tool/call', when: [], to: 'tool_running' },
  { on: 'approval/requested', when: [], to: 'approval_waiting' },
  { on: 'approval/resolved', when: ['asked', 'at-work', 'approvals-open'], to: 'approval_waiting' },
  { on: 'approval/resolved', when: ['asked', 'at-work', 'inputs-open'], to: 'input_waiting' },
  { on: 'approval/resolved', when: ['asked', 'at-work'], to: 'tool_running' },
  { on: 'user-input/requested', when: ['approvals-open'], to: 'approval_waiting' },
  { on: 'user-input/requested', when: [], to: 'input_waiting' },
  { on: 'user-input/resolved', when: ['waits-for-input', 'approvals-open'], to: 'approval_waiting' },
  { on: 'user-input/resolved', when: ['waits-for-input', 'inputs-open'], to: 'input_waiting' },
  { on: 'user-input/resolved', when: ['waits-for-input'], to: 'tool_running' },
  { on: 'step/end', when: [], to: 'step_completed' },
  { on: 'turn/end', when: ['own-turn', 'inbox-empty'], to: 'idle' },
  { on: 'turn/end', when: ['own-turn'], to: 'turn_completed' },
  { on: 'input/entered', when: ['turn-over', 'inbox-empty'], to: 'idle' },
  { on: 'input/discarded', when: ['turn-over', 'inbox-empty'], to: 'idle' },
  { on: 'agent/inbox/spliced', when: ['turn-over', 'inbox-empty'], to: 'idle' },
  { on: 'execution/recovery', when: ['attention'], to: 'attention_required' },
];

/** What is known of a message to a channel. A failed one that is queued again is queued. */
export const DELIVERY_STATES = ['queued', 'succeeded', 'failed'] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** Where a session's working state lies. */
export const STORAGE_KINDS = ['none', 'pvc', 'folder', 'evicted'] as const;
export type StorageKind = (typeof STORAGE_KINDS)[number];

/** What a reservation holds a place for while the outside world is asked. */
export const RESERVATION_KINDS = ['runner-create', 'retention'] as const;
export type ReservationKind = (typeof RESERVATION_KINDS)[number];

/** What retention removes. */
export const RETENTION_KINDS = [
  'runs',
  'run-events',
  'intents',
  'cancel-requests',
  'runners',
  'readers',
  'queue-tasks',
  'parked-events',
] as const;
export type RetentionKind = (typeof RETENTION_KINDS)[number];

/** Whether the views of a session wait to be built anew, are being built by somebody under a lease, or have been. */
export const REBUILD_STATES = ['waiting', 'running', 'completed'] as const;
export type RebuildState = (typeof REBUILD_STATES)[number];
