import type { Client } from '@runplane/client';
import {
  CLAIM_LEASE_MS_DEFAULT,
  cutText,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  QUEUE_BATCH_ROWS_MAX,
  redactError,
  type ClaimedQueueTask,
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

/** How a task ended; a handler that returns nothing has completed it, one that throws gives it back with its error, to be tried again. */
export type TaskOutcome =
  | { readonly outcome: 'completed' }
  | { readonly outcome: 'failed' | 'blocked'; readonly failureKind: string; readonly failureMessage?: string | undefined }
  | { readonly outcome: 'released'; readonly delayMs?: number | undefined };

export type TaskHandler = (task: ClaimedQueueTask, context: WorkContext) => Promise<TaskOutcome | undefined | void>;

export interface QueueWorkerOptions extends WorkerOptions {
  readonly client: Pick<Client, 'claimQueueTasks' | 'renewQueueTasks' | 'settleQueueTasks'>;
  readonly queue: string;
  /** Absent: all lanes of the queue. */
  readonly lane?: string | undefined;
  readonly handle: TaskHandler;
}

type Settled = TaskOutcome & { readonly failureKind?: string | undefined; readonly failureMessage?: string | undefined };

/** Works off the tasks of a queue until `signal` aborts; resolves when every task that it held is told of, or lost: see claim-worker.ts. */
export function runQueueWorker(options: QueueWorkerOptions): Promise<WorkerReport> {
  return runClaimWorker<ClaimedQueueTask, Settled>({ ...options, source: tasksOf(options) });
}

/** A message that is too long must not cost the task its end. */
const cut = (outcome: Settled): Settled =>
  outcome.failureMessage === undefined
    ? outcome
    : { ...outcome, failureMessage: cutText(outcome.failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX) };

function tasksOf({
  client,
  queue,
  lane,
  owner = ownOwner,
  leaseMs = CLAIM_LEASE_MS_DEFAULT,
  waitSeconds = WAIT_SECONDS_DEFAULT,
}: QueueWorkerOptions): WorkSource<ClaimedQueueTask, Settled> {
  return {
    claim: async (limit) => {
      const tasks = await client.claimQueueTasks(
        { queue, ...(lane === undefined ? {} : { lane }), owner, limit, leaseMs },
        { waitSeconds },
      );
      return tasks.map((work) => ({ work, remainingMs: work.leaseRemainingMs }));
    },
    renew: async (tasks) => {
      const verdicts = await client.renewQueueTasks({ claims: tasks.map(({ taskId, epoch }) => ({ taskId, epoch })), leaseMs });
      return verdicts.map(({ verdict, leaseRemainingMs }) => (verdict === 'ok' ? (leaseRemainingMs ?? 0) : null));
    },
    settle: async (ends) => {
      const verdicts = await client.settleQueueTasks(
        ends.map(({ work: { taskId, epoch }, outcome }) => ({ taskId, epoch, ...cut(outcome) })),
      );
      return verdicts.map(({ verdict }) => verdict === 'ok' || verdict === 'replayed');
    },
    completed: { outcome: 'completed' },
    released: { outcome: 'released' },
    failedTry: (error) => ({ outcome: 'released', failureKind: 'backend-failed', failureMessage: redactError(error) }),
    batchMax: QUEUE_BATCH_ROWS_MAX,
  };
}
