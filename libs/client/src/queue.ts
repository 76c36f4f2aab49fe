import {
  ActivatedQueueRetry,
  type ActivateQueueRetry,
  CancelledQueueTask,
  type CancelQueueTask,
  ChangedQueueTask,
  type ClaimQueueTasks,
  ClaimedQueueTasks,
  type ClaimedQueueTask,
  ClaimVerdicts,
  type ClaimVerdict,
  CreatedQueueTask,
  CreatedQueueTasks,
  type CreateQueueTask,
  type CreateQueueTasks,
  LIST_ROWS_MAX,
  MarkedQueueTasks,
  type MarkQueueTasksRead,
  newId,
  NotedReservationFailure,
  type NoteReservationFailure,
  QueueAttemptList,
  QueueCommander,
  QueueLane,
  QueueLaneList,
  QueueRetryReservation,
  QueueStats,
  QueueTask,
  QueueTaskChanges,
  QueueTaskList,
  type QueueTaskState,
  type QueueTaskSummary,
  RenewedQueueTask,
  type RenewQueueTask,
  type RenewQueueTasks,
  type ReserveQueueRetry,
  RunningQueueTask,
  type RunQueueTask,
  type ScheduleQueueTask,
  type SetLaneLimit,
  SettledQueueTask,
  type SettleQueueTask,
  type SettleQueueTasks,
  TaskExplanation,
  UpdatedQueueAttempt,
  type UpdateQueueAttempt,
} from '@runplane/contracts';
import { callsOf } from './calls';
import type { CallOptions, Transport } from './transport';

export interface QueueTaskFilter {
  queue?: string | undefined;
  state?: QueueTaskState | undefined;
  /** Whose unread marks to show. */
  readerId?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

const at = (taskId: string): string => `/queue/tasks/${encodeURIComponent(taskId)}`;
const retryAt = (taskId: string, attemptId: string): string => `${at(taskId)}/retries/${encodeURIComponent(attemptId)}`;

/** Calls about queue tasks. */
export function queueCalls(transport: Transport) {
  const { call, get, post, put } = callsOf(transport);

  const listQueueTasks = (filter: QueueTaskFilter = {}, o?: CallOptions): Promise<QueueTaskList> =>
    get('/queue/tasks', QueueTaskList, { ...filter }, o);

  return {
    /** The key is made here unless given, so that a repeat after a lost answer finds the task of the first call. */
    createQueueTask: (
      task: CreateQueueTask,
      { idempotencyKey = newId('key'), ...o }: CallOptions & { idempotencyKey?: string } = {},
    ): Promise<CreatedQueueTask> => post('/queue/tasks', task, CreatedQueueTask, o, idempotencyKey),

    /** All of them or none; a task without a key of its own gets one here, for the same reason. */
    createQueueTasks: ({ tasks }: CreateQueueTasks, o?: CallOptions): Promise<CreatedQueueTasks> =>
      post('/queue/task-batches', { tasks: tasks.map((task) => ({ idempotencyKey: newId('key'), ...task })) }, CreatedQueueTasks, o),

    listQueueTasks,

    /** Every task that the filter finds, page by page. */
    async *iterateQueueTasks(
      filter: Omit<QueueTaskFilter, 'cursor'> = {},
      o?: CallOptions,
    ): AsyncGenerator<QueueTaskSummary, void, undefined> {
      for (let cursor: string | undefined; ;) {
        const page = await listQueueTasks({ limit: LIST_ROWS_MAX, ...filter, cursor }, o);
        yield* page.tasks;
        if (page.cursor === null) return;
        cursor = page.cursor;
      }
    },

    /** Tasks in the order of their last changes, behind a cursor; follow `cursor`. */
    listQueueTaskChanges: ({
      after,
      readerId,
      limit,
      ...o
    }: CallOptions & { after?: string; readerId?: string; limit?: number } = {}): Promise<QueueTaskChanges> =>
      get('/queue/task-changes', QueueTaskChanges, { after, readerId, limit }, o),

    getQueueTask: (taskId: string, o?: CallOptions): Promise<QueueTask> => get(at(taskId), QueueTask, {}, o),

    listQueueAttempts: (
      taskId: string,
      { cursor, limit, ...o }: CallOptions & { cursor?: string; limit?: number } = {},
    ): Promise<QueueAttemptList> => get(`${at(taskId)}/attempts`, QueueAttemptList, { cursor, limit }, o),

    explainQueueTask: (taskId: string, o?: CallOptions): Promise<TaskExplanation> => get(`${at(taskId)}/why`, TaskExplanation, {}, o),

    /** Not repeated after a lost answer: a repeat would claim further tasks. What was claimed in vain goes to others when its lease ends. */
    async claimQueueTasks(
      claim: ClaimQueueTasks,
      { waitSeconds, ...o }: CallOptions & { waitSeconds?: number | undefined } = {},
    ): Promise<ClaimedQueueTask[]> {
      const body = waitSeconds === undefined ? claim : { ...claim, waitSeconds };
      const { tasks } = await call(
        { method: 'POST', path: '/queue/claims', body, answer: ClaimedQueueTasks, repeatable: false, waitSeconds },
        o,
      );
      return tasks;
    },

    renewQueueTask: (taskId: string, renewal: RenewQueueTask, o?: CallOptions): Promise<RenewedQueueTask> =>
      post(`${at(taskId)}/renew`, renewal, RenewedQueueTask, o),

    async renewQueueTasks(renewal: RenewQueueTasks, o?: CallOptions): Promise<ClaimVerdict[]> {
      return (await post('/queue/claims/renew', renewal, ClaimVerdicts, o)).claims;
    },

    settleQueueTask: (taskId: string, settlement: SettleQueueTask, o?: CallOptions): Promise<SettledQueueTask> =>
      post(`${at(taskId)}/settle`, settlement, SettledQueueTask, o),

    async settleQueueTasks(settlements: SettleQueueTasks['settlements'], o?: CallOptions): Promise<ClaimVerdict[]> {
      return (await post('/queue/claims/settle', { settlements }, ClaimVerdicts, o)).claims;
    },

    runQueueTask: (taskId: string, run: RunQueueTask = {}, o?: CallOptions): Promise<RunningQueueTask> =>
      post(`${at(taskId)}/run`, run, RunningQueueTask, o),

    cancelQueueTask: (taskId: string, cancel: CancelQueueTask = {}, o?: CallOptions): Promise<CancelledQueueTask> =>
      post(`${at(taskId)}/cancel`, cancel, CancelledQueueTask, o),

    scheduleQueueTask: (taskId: string, schedule: ScheduleQueueTask, o?: CallOptions): Promise<ChangedQueueTask> =>
      post(`${at(taskId)}/schedule`, schedule, ChangedQueueTask, o),

    /** Repeated only by whoever called: it names the version that it has read, which the first try has moved. */
    updateQueueAttempt: (taskId: string, update: UpdateQueueAttempt, o?: CallOptions): Promise<UpdatedQueueAttempt> =>
      call({ method: 'POST', path: `${at(taskId)}/attempts`, body: update, answer: UpdatedQueueAttempt, repeatable: false }, o),

    reserveQueueRetry: (
      taskId: string,
      retry: ReserveQueueRetry,
      { idempotencyKey, ...o }: CallOptions & { idempotencyKey: string },
    ): Promise<QueueRetryReservation> => post(`${at(taskId)}/retries`, retry, QueueRetryReservation, o, idempotencyKey),

    activateQueueRetry: (
      taskId: string,
      attemptId: string,
      activation: ActivateQueueRetry,
      o?: CallOptions,
    ): Promise<ActivatedQueueRetry> => post(`${retryAt(taskId, attemptId)}/activate`, activation, ActivatedQueueRetry, o),

    noteReservationFailure: (
      taskId: string,
      attemptId: string,
      failure: NoteReservationFailure,
      o?: CallOptions,
    ): Promise<NotedReservationFailure> => post(`${retryAt(taskId, attemptId)}/failure`, failure, NotedReservationFailure, o),

    markQueueTasksRead: (marks: MarkQueueTasksRead, o?: CallOptions): Promise<MarkedQueueTasks> =>
      post('/queue/reads', marks, MarkedQueueTasks, o),

    getQueueStats: ({ queue, ...o }: CallOptions & { queue?: string } = {}): Promise<QueueStats> =>
      get('/queue/stats', QueueStats, { queue }, o),

    getQueueCommander: ({ queue, readerId, ...o }: CallOptions & { queue?: string; readerId?: string } = {}): Promise<QueueCommander> =>
      get('/queue/commander', QueueCommander, { queue, readerId }, o),

    listQueueLanes: ({
      queue,
      cursor,
      limit,
      ...o
    }: CallOptions & { queue?: string; cursor?: string; limit?: number } = {}): Promise<QueueLaneList> =>
      get('/queue/lanes', QueueLaneList, { queue, cursor, limit }, o),

    setLaneLimit: (limit: SetLaneLimit, o?: CallOptions): Promise<QueueLane> => put('/queue/lanes', limit, QueueLane, o),
  };
}
