import type { TaskCause } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { AHEAD_MAX, type ExplainedTask } from './explain-task.sql';

// Why a task is where it is, in one sentence. Pure: the predicates are those by which claims and sweeps decide.

/** A ready task of a queue in which nothing runs and that nobody has taken for longer than this has no worker; workers poll each second. */
export const WORKER_PATIENCE_MS = 60_000;

export interface Why {
  readonly cause: TaskCause;
  readonly isMoving: boolean;
  readonly sentence: string;
  readonly nextChangeInMs: number | null;
}

/** Says why. A state that no rule knows is a defect and throws: it must not read as "waiting". */
export function explainTaskFacts(task: ExplainedTask): Why {
  switch (task.state) {
    case 'pending':
      return explainPending(task);
    case 'running':
      return explainRunning(task);
    case 'failed':
    case 'blocked':
      return explainRetryable(task);
    case 'completed':
      return moving('ended', 'The task is completed; nothing will move it.');
    case 'cancelled':
      return moving('ended', `The task was cancelled (${quoted(task.cancelReason)}); nothing will move it.`);
    default:
      throw new Error(`no explanation knows the task state ${String(task.state satisfies never)}`);
  }
}

function explainPending(task: ExplainedTask): Why {
  const { isDue, readyInMs, attempts, maxAttempts, lastError, laneRunning, laneMax, queueRunning, queueMax, lane, queue } = task;
  if (!isDue) {
    const leftMs = Math.max(readyInMs, 0);
    return attempts === 0
      ? moving('waits-for-its-time', `The task is not to start before ${inWords(leftMs)} from now.`, leftMs)
      : moving(
          'backs-off',
          `Attempt ${attempts} of ${maxAttempts} failed${lastError === null ? '' : ` (${lastError})`}; it is tried again in ${inWords(leftMs)}.`,
          leftMs,
        );
  }
  const place =
    task.ahead === 0
      ? 'it is the next of its lane'
      : `${task.ahead === AHEAD_MAX ? `${AHEAD_MAX} or more` : task.ahead} tasks of its lane come before it`;
  if (laneMax !== null && (laneRunning ?? 0) >= laneMax)
    return moving('lane-full', `${laneRunning ?? 0} of ${laneMax} tasks that lane ${lane} allows are running; ${place}.`);
  if (queueMax !== null && (queueRunning ?? 0) >= queueMax)
    return moving('queue-full', `${queueRunning ?? 0} of ${queueMax} tasks that queue ${queue} allows are running; ${place}.`);
  const waitedMs = -readyInMs;
  if (!task.isQueueServed && waitedMs > WORKER_PATIENCE_MS)
    return stuck(
      'no-worker',
      `The task has been ready for ${inWords(waitedMs)}, and nothing runs in queue ${queue}: no worker claims from it; ${place}.`,
    );
  return moving('waits-for-worker', `The task waits for a worker that claims from queue ${queue}; ${place}.`);
}

function explainRunning(task: ExplainedTask): Why {
  const { holder, leaseInMs, runId, attempts, maxAttempts } = task;
  if (holder !== null) {
    if (isLive(leaseInMs))
      return moving(
        'worked-on',
        `The worker ${holder} holds the task for another ${inWords(leaseInMs ?? 0)} (attempt ${attempts} of ${maxAttempts}).`,
        leaseInMs,
      );
    const then = attempts >= maxAttempts ? 'fails it: that was the last attempt' : 'gives it to another worker, after a back-off';
    return stuck(
      'worker-lost',
      `The worker ${holder} stopped renewing its lease ${inWords(-(leaseInMs ?? 0))} ago; the next sweep ${then}.`,
      0,
    );
  }
  if (runId === null)
    return stuck(
      'reported-by-others',
      `Attempt ${task.attemptId ?? ''} is ${task.attemptState ?? 'gone'}, as a dispatcher outside reported; only its next report moves the task.`,
    );
  if (task.runFinished) return stuck('run-has-ended', `The run ${runId} has ended; the next pass gives the task its end.`, 0);
  return moving('run-under-way', `The run ${runId} works on the task; its end is the task's.`);
}

function explainRetryable(task: ExplainedTask): Why {
  const { state, lastError, reservedAttemptId, reservedForMs } = task;
  const ended = `The task is ${state}${lastError === null ? '' : ` (${lastError})`}`;
  if (reservedAttemptId === null) return stuck('can-be-retried', `${ended}; nobody has asked for a retry.`);
  return isLive(reservedForMs)
    ? moving(
        'retry-reserved',
        `${ended}; the retry ${reservedAttemptId} is reserved and has ${inWords(reservedForMs ?? 0)} to be activated.`,
        reservedForMs,
      )
    : stuck(
        'retry-reservation-over',
        `${ended}; the retry ${reservedAttemptId} was not activated in its time: another may be reserved.`,
        0,
      );
}

const moving = (cause: TaskCause, sentence: string, nextChangeInMs: number | null = null): Why => ({
  cause,
  isMoving: true,
  sentence,
  nextChangeInMs,
});
const stuck = (cause: TaskCause, sentence: string, nextChangeInMs: number | null = null): Why => ({
  cause,
  isMoving: false,
  sentence,
  nextChangeInMs,
});
const quoted = (text: string | null): string => `“${text ?? ''}”`;

export function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.max(Math.round(ms), 0)} ms`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}
