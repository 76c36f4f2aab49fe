import {
  attemptMayGo,
  AttemptTransitionRefused,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  freeText,
  InvalidRequest,
  isEndedTask,
  isFinalAttempt,
  parseInput,
  TaskClosed,
  TaskHeld,
  TaskVersionConflict,
  UpdateQueueAttempt,
  type QueueAttemptState,
  type UpdatedQueueAttempt,
} from '@runplane/contracts';
import { sql, type Tx } from '@runplane/database';
import { attemptSet, insertAttempt, lockAttempts, writeAttempt, type AttemptRow } from './attempt.sql';
import { placesIn, writePlaces, type LaneLimit } from './lane.sql';
import { requireTaskInLane } from './require';
import { assertRoom, readTaskAndAttempt } from './run-queue-task';
import { announceQueue } from './streams';
import { endedSet, writeTask, type TaskKey, type TaskRow } from './task.sql';

type Wanted = ReturnType<typeof UpdateQueueAttempt.parse>;
type Failure = { kind: string; message: string | null } | null;

/**
 * Reports an attempt of a dispatcher of the caller's own: begins one, moves it on, ends it, and the task with it.
 *
 * Input     attemptId: a new one begins an attempt, where the task is pending; expectedVersion: of the task, as the caller has read it;
 *           epoch: where somebody holds the task under a lease; state; ids of run, command, job, session, what is left out stays; failureKind: for
 *           failed and blocked.
 * Returns   `changed: false`: the attempt has ended so already.
 * Locks     lanes → task → attempts.   Writes: queue_tasks, queue_attempts, queue_lanes.
 * Errors    TaskNotFound, TaskVersionConflict, TaskHeld, TaskClosed, AttemptTransitionRefused (it has ended in another way, is reserved, or another is
 *           active), LaneFull, InvalidRequest.
 * Repeat    a repeated end is answered; anything else meets TaskVersionConflict: two dispatchers cannot both begin one.
 * Keeps     OWN-1.   Source: the original's updateQueueTaskAttempt, which was last-writer-wins.
 */
export async function updateQueueAttempt(
  tx: Tx,
  { tenantId, taskId, ...input }: TaskKey & UpdateQueueAttempt,
): Promise<UpdatedQueueAttempt> {
  const wanted = parseInput(UpdateQueueAttempt, input);
  const failure = failureOf(wanted);
  const key = { tenantId, taskId };
  const { task, limits } = await requireTaskInLane(tx, key);
  const attempts = await lockAttempts(tx, key);
  const attempt = attempts.find(({ attemptId }) => attemptId === wanted.attemptId);
  if (attempt !== undefined && isFinalAttempt(attempt.state)) {
    assertSameEnd(attempt, wanted, failure);
    return { ...(await readTaskAndAttempt(tx, key, attempt.attemptId)), changed: false };
  }
  assertMayUpdate(task, wanted);
  if (attempt === undefined) await beginAttempt(tx, task, attempts, wanted, failure);
  else await moveAttempt(tx, key, attempt, wanted, failure);
  await moveTask(tx, task, limits, wanted, failure, attempt === undefined);
  return { ...(await readTaskAndAttempt(tx, key, wanted.attemptId)), changed: true };
}

/** Errors: InvalidRequest: failed and blocked need a failure kind, what goes on or is completed has none. */
function failureOf({ state, failureKind, failureMessage }: Wanted): Failure {
  const kind = failureKind ?? (state === 'cancelled' ? 'cancelled' : undefined);
  const needsOne = isFinalAttempt(state) && state !== 'completed';
  if ((kind !== undefined) !== needsOne) {
    const message = needsOne ? 'failed and blocked need one' : `${state} has none`;
    throw new InvalidRequest(`The input is not valid: failureKind: ${message}.`, { issues: [{ path: 'failureKind', message }] });
  }
  return kind === undefined
    ? null
    : { kind, message: failureMessage == null ? null : freeText(failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX) };
}

function assertSameEnd(attempt: AttemptRow, wanted: Wanted, failure: Failure): void {
  const same = (['runId', 'commandId', 'runnerJobId', 'sessionId'] as const).every(
    (name) => wanted[name] === undefined || wanted[name] === attempt[name],
  );
  if (attempt.state !== wanted.state || !same || attempt.failureKind !== (failure?.kind ?? null)) throw refused(attempt, wanted.state);
}

function assertMayUpdate(task: TaskRow, { expectedVersion, epoch }: Wanted): void {
  const { id: taskId, state, version, holder, leaseRemainingMs } = task;
  if (isEndedTask(state)) throw new TaskClosed(`Queue task ${taskId} has ended (${state}).`, { taskId, state });
  if (version !== expectedVersion)
    throw new TaskVersionConflict(`Queue task ${taskId} is at version ${version}, not ${expectedVersion}: read it again.`, {
      taskId,
      expected: expectedVersion,
      version,
    });
  if (holder !== null && epoch !== task.epoch)
    throw new TaskHeld(`Queue task ${taskId} is held by ${holder}: name the epoch of the claim.`, { taskId, holder, leaseRemainingMs });
}

async function beginAttempt(tx: Tx, task: TaskRow, attempts: readonly AttemptRow[], wanted: Wanted, failure: Failure): Promise<void> {
  const active = attempts.find(({ terminalAt }) => terminalAt === null);
  if (active !== undefined) throw refused(active, wanted.state);
  const { attemptId, state, runId = null, commandId = null, runnerJobId = null, sessionId = task.sessionId } = wanted;
  await insertAttempt(tx, {
    tenantId: task.tenantId,
    taskId: task.id,
    attemptId,
    retryIndex: task.lastRetryIndex + 1,
    state,
    payloadHash: task.payloadHash,
    previousAttemptId: task.attemptId,
    runId,
    commandId,
    runnerJobId,
    sessionId,
    failureKind: failure?.kind ?? null,
    failureMessage: failure?.message ?? null,
  });
}

async function moveAttempt(tx: Tx, key: TaskKey, attempt: AttemptRow, wanted: Wanted, failure: Failure): Promise<void> {
  if (!attemptMayGo(attempt.state, wanted.state, 'updateQueueAttempt')) throw refused(attempt, wanted.state);
  const { runId, commandId, runnerJobId, sessionId } = wanted;
  await writeAttempt(
    tx,
    key,
    attempt.retryIndex,
    sql`${attemptSet(wanted.state, failure)}, run_id = coalesce(${runId ?? null}::text, a.run_id), command_id = coalesce(${commandId ?? null}::text, a.command_id),
      runner_job_id = coalesce(${runnerJobId ?? null}::text, a.runner_job_id), session_id = coalesce(${sessionId ?? null}::text, a.session_id)`,
  );
}

async function moveTask(
  tx: Tx,
  task: TaskRow,
  limits: readonly LaneLimit[],
  wanted: Wanted,
  failure: Failure,
  isNew: boolean,
): Promise<void> {
  const key = { tenantId: task.tenantId, taskId: task.id };
  const { attemptId, state } = wanted;
  const began = isNew
    ? sql`, attempt_id = ${attemptId}::text, last_retry_index = t.last_retry_index + 1, attempts = t.attempts + 1, epoch = t.epoch + 1` // a claim of the moment before is fenced
    : sql``;
  const session = sql`, session_id = coalesce(${wanted.sessionId ?? null}::text, t.session_id)`;
  if (state === 'pending' || state === 'running') {
    const begins = task.state === 'pending';
    if (begins) assertRoom(task, limits);
    const places = begins ? placesIn(limits) : task.places;
    if (begins) await writePlaces(tx, { ...task, places }, 1);
    return writeTask(tx, key, sql`state = 'running', places = ${places}::smallint${began}${session}`);
  }
  await writePlaces(tx, task, -1);
  const lastError = failure === null ? null : `${failure.kind}${failure.message === null ? '' : `: ${failure.message}`}`;
  const cancelled = sql`, cancelled_at = runplane.app_now(), cancel_reason = ${failure?.message ?? 'reported as cancelled'}::text`;
  await writeTask(tx, key, sql`${endedSet(state, { lastError })}${state === 'cancelled' ? cancelled : sql``}${began}${session}`);
  announceQueue(tx, task.tenantId, task.queue); // a place in its lane is free
}

function refused({ taskId, attemptId, state: from }: AttemptRow, to: QueueAttemptState): AttemptTransitionRefused {
  return new AttemptTransitionRefused(`Attempt ${attemptId} of queue task ${taskId} is ${from}: it does not become ${to} by this.`, {
    taskId,
    attemptId,
    from,
    to,
  });
}
