import {
  ActivateQueueRetry,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  freeText,
  IdempotencyConflict,
  newId,
  NoteReservationFailure,
  parseInput,
  QUEUE_RESERVATION_MS,
  requireIdentifier,
  ReserveQueueRetry,
  RetryReservationExpired,
  RetryReserved,
  TaskClosed,
  TaskNotRetryable,
  type ActivatedQueueRetry,
  type QueueAttempt,
  type QueueRetryReservation,
} from '@runplane/contracts';
import { sql, type Tx } from '@runplane/database';
import { getRun } from '@runplane/runs';
import { attemptSet, insertAttempt, lockAttempts, toAttempt, writeAttempt, type AttemptRow } from './attempt.sql';
import { workHash } from './create-queue-tasks';
import { placesIn, writePlaces } from './lane.sql';
import { attemptNotFound, requireLockedTask, requireTaskInLane } from './require';
import { readTaskAndAttempt } from './run-queue-task';
import { endReservation, isReservationOver } from './settle-attempts';
import { endedSet, toTask, writeRetryIndex, writeTask, type TaskKey, type TaskRow } from './task.sql';

// Retries by hand or by a dispatcher of the caller's own, in three steps: reserve (keeps other retries away, and allots the ids of run and job),
// make the run under the reserved id, activate. A crash in between is resumed with the same key. A reservation lives 10 minutes.

/**
 * Reserves the retry of a failed or blocked task.
 *
 * Input     idempotencyKey: per task; reason: up to 500 code points; dryRun: looks only.
 * Returns   the reserved attempt with its run and job ids. `replayed`: the key was used before with the same reason: its attempt as it is now, and where
 *           its time was over and nobody else came, its time anew.
 * Locks     task → attempts.   Writes: queue_attempts. The task and its version do not change but for the number of its attempts.
 * Errors    TaskNotFound, IdempotencyConflict (other reason, or the stored task is not the one it was), RetryReserved (another key, with what is left of
 *           its time; one whose time is over is taken over), TaskNotRetryable.
 * Repeat    safe.   Keeps: OWN-1, OWN-2, IDEM-1.   Source: the original's reserveQueueRetryAttempt, whose reservations never ended.
 */
export async function reserveQueueRetry(
  tx: Tx,
  { tenantId, taskId, idempotencyKey, ...input }: TaskKey & ReserveQueueRetry & { idempotencyKey: string },
): Promise<QueueRetryReservation> {
  const { reason: given, dryRun } = parseInput(ReserveQueueRetry, input);
  const reason = freeText(given);
  const retryKey = requireIdentifier(idempotencyKey, 'the idempotency key');
  const key = { tenantId, taskId };
  const task = await requireLockedTask(tx, key);
  assertSameWork(task);
  const attempts = await lockAttempts(tx, key);
  const known = attempts.find((attempt) => attempt.idempotencyKey === retryKey);
  if (known !== undefined) return replayReservation(tx, task, known, { reason, dryRun });

  const active = attempts.find(({ terminalAt }) => terminalAt === null);
  const over = active !== undefined && isReservationOver(active) ? active : undefined;
  assertRetryable(task, over === undefined ? active : undefined);
  const retryIndex = task.lastRetryIndex + 1;
  if (dryRun) return { task: toTask(task), attempt: null, retryIndex, created: false, replayed: false, dryRun };

  if (over !== undefined) await endReservation(tx, key, over);
  const attempt = {
    attemptId: newId('qa'),
    retryIndex,
    state: 'reserved' as const,
    idempotencyKey: retryKey,
    reason,
    payloadHash: task.payloadHash,
    previousAttemptId: attempts[0]?.attemptId ?? task.attemptId,
    runId: newId('run'),
    runnerJobId: newId('rjob'),
    sessionId: task.sessionId,
    reservedMs: QUEUE_RESERVATION_MS,
  };
  await insertAttempt(tx, { ...key, ...attempt });
  await writeRetryIndex(tx, key, retryIndex);
  return { ...(await readTaskAndAttempt(tx, key, attempt.attemptId)), retryIndex, created: true, replayed: false, dryRun };
}

async function replayReservation(
  tx: Tx,
  task: TaskRow,
  known: AttemptRow,
  { reason, dryRun }: { reason: string; dryRun: boolean },
): Promise<QueueRetryReservation> {
  const key = { tenantId: task.tenantId, taskId: task.id };
  if (known.reason !== reason)
    throw new IdempotencyConflict(`The same key was used before for a retry with another reason (${known.attemptId}).`, {
      resource: 'queue retry',
      id: known.attemptId,
    });
  if (!dryRun && isReservationOver(known))
    await writeAttempt(
      tx,
      key,
      known.retryIndex,
      sql`expires_at = runplane.app_now() + ${QUEUE_RESERVATION_MS}::int * interval '1 millisecond'`,
    );
  return { ...(await readTaskAndAttempt(tx, key, known.attemptId)), retryIndex: known.retryIndex, created: false, replayed: true, dryRun };
}

/** Errors: IdempotencyConflict where the stored work is no longer what it was hashed as. */
function assertSameWork(task: TaskRow): void {
  if (workHash(task).hash === task.payloadHash) return;
  throw new IdempotencyConflict(`Queue task ${task.id} is not what was created: it cannot be retried.`, {
    resource: 'queue task',
    id: task.id,
  });
}

function assertRetryable(task: TaskRow, active: AttemptRow | undefined): void {
  const { id: taskId, state } = task;
  if (active?.state === 'reserved')
    throw new RetryReserved(`Another retry of queue task ${taskId} is reserved (${active.attemptId}).`, {
      taskId,
      attemptId: active.attemptId,
      remainingMs: active.reservedForMs ?? 0,
    });
  if ((state !== 'failed' && state !== 'blocked') || active !== undefined)
    throw new TaskNotRetryable(`Queue task ${taskId} is ${state}: only failed and blocked tasks are retried.`, {
      taskId,
      state,
      activeAttemptId: active?.attemptId ?? null,
    });
}

/**
 * Notes why a reserved retry did not get further. It stays reserved, for another try with its key.
 * Locks     task → attempts.   Errors: TaskNotFound, AttemptNotFound.   Repeat: safe; an attempt that is not reserved is returned as it is.
 */
export async function noteReservationFailure(
  tx: Tx,
  { tenantId, taskId, attemptId, ...input }: TaskKey & NoteReservationFailure & { attemptId: string },
): Promise<{ attempt: QueueAttempt; changed: boolean }> {
  const { failureKind, failureMessage } = parseInput(NoteReservationFailure, input);
  const key = { tenantId, taskId };
  await requireLockedTask(tx, key);
  const attempt = findOf(await lockAttempts(tx, key), key, attemptId);
  if (attempt.state !== 'reserved') return { attempt: toAttempt(attempt), changed: false };
  const message = messageOf(failureMessage);
  await writeAttempt(tx, key, attempt.retryIndex, sql`failure_kind = ${failureKind}::text, failure_message = ${message}::text`);
  return { attempt: (await readTaskAndAttempt(tx, key, attemptId)).attempt, changed: true };
}

/**
 * Begins a reserved retry, or records that it failed: the task takes the attempt's state.
 *
 * Input     state: `running` (the run of the reserved id is there), `failed` or `blocked` with a failure kind; commandId, sessionId: of that run.
 * Returns   `activated: false`: it was activated so before.
 * Locks     lanes → task → attempts.   Writes: queue_tasks, queue_attempts, queue_lanes. A limit does not refuse it, since its run is there already;
 *           it is counted, and claims wait.
 * Errors    TaskNotFound, AttemptNotFound, RunNotFound, RetryReservationExpired (ask again with its key), TaskNotRetryable, IdempotencyConflict (activated
 *           with other content), TaskClosed (the retry was cancelled).
 * Repeat    safe.   Keeps: OWN-1, OWN-2, IDEM-1.   Source: the original's activateQueueRetryAttempt.
 */
export async function activateQueueRetry(
  tx: Tx,
  { tenantId, taskId, attemptId, ...input }: TaskKey & ActivateQueueRetry & { attemptId: string },
): Promise<ActivatedQueueRetry> {
  const wanted = parseInput(ActivateQueueRetry, input);
  const { state, commandId = null, sessionId = null, failureKind = null } = wanted;
  const failure = failureKind === null ? null : { kind: failureKind, message: messageOf(wanted.failureMessage) };
  const key = { tenantId, taskId };
  const { task, limits } = await requireTaskInLane(tx, key);
  const attempt = findOf(await lockAttempts(tx, key), key, attemptId);
  if (attempt.state !== 'reserved') {
    assertActivationReplay(attempt, { commandId, sessionId, state, failureKind });
    return { ...(await readTaskAndAttempt(tx, key, attemptId)), activated: false };
  }
  if (isReservationOver(attempt))
    throw new RetryReservationExpired(`The time of the reserved retry ${attemptId} is over: reserve it again with its key.`, {
      taskId,
      attemptId,
    });
  assertRetryable(task, undefined);
  if (state === 'running') await getRun(tx, { tenantId, runId: attempt.runId ?? '' }); // whoever runs nothing has nothing to begin with

  await writeAttempt(
    tx,
    key,
    attempt.retryIndex,
    sql`${attemptSet(state, failure)}, command_id = ${commandId}::text, session_id = coalesce(${sessionId}::text, a.session_id), expires_at = NULL`,
  );
  const places = state === 'running' ? placesIn(limits) : 0;
  await writePlaces(tx, { ...task, places }, 1);
  const changed = sql`attempt_id = ${attemptId}::text, session_id = coalesce(${sessionId}::text, t.session_id)`;
  await writeTask(
    tx,
    key,
    state === 'running'
      ? sql`state = 'running', ended_at = NULL, attempts = t.attempts + 1, places = ${places}::smallint, ${changed}`
      : sql`${endedSet(state, { lastError: failure === null ? null : `${failure.kind}${failure.message === null ? '' : `: ${failure.message}`}` })}, ${changed}`,
  );
  return { ...(await readTaskAndAttempt(tx, key, attemptId)), activated: true };
}

/** What an activation said that has happened: a running attempt may have ended since, and what was left out is not compared. */
function assertActivationReplay(
  attempt: AttemptRow,
  {
    commandId,
    sessionId,
    state,
    failureKind,
  }: { commandId: string | null; sessionId: string | null; state: string; failureKind: string | null },
): void {
  const { attemptId, taskId } = attempt;
  if (attempt.activatedAt === null || attempt.state === 'cancelled' || attempt.failureKind === 'reservation-expired')
    throw new TaskClosed(`The reserved retry ${attemptId} has ended (${attempt.state}).`, { taskId, state: attempt.state });
  const sameState = state === 'running' ? failureKind === null : attempt.state === state && attempt.failureKind === failureKind;
  const same =
    sameState && (commandId === null || attempt.commandId === commandId) && (sessionId === null || attempt.sessionId === sessionId);
  if (!same)
    throw new IdempotencyConflict(`The retry ${attemptId} was activated before with other content.`, {
      resource: 'queue retry',
      id: attemptId,
    });
}

function findOf(attempts: readonly AttemptRow[], { taskId }: TaskKey, attemptId: string): AttemptRow {
  const found = attempts.find((attempt) => attempt.attemptId === attemptId);
  if (found === undefined) throw attemptNotFound(taskId, attemptId);
  return found;
}

const messageOf = (message: string | null | undefined): string | null =>
  message == null ? null : freeText(message, FAILURE_MESSAGE_CODE_POINTS_MAX);
