import {
  isEndedTask,
  LaneFull,
  newId,
  parseInput,
  RunQueueTask,
  SessionRef,
  TaskClaimLost,
  TaskClosed,
  TaskHeld,
  TaskNotRunnable,
  type Command,
  type CreateRun,
  type DispatchIntent,
  type JsonObject,
  type Run,
  type RunningQueueTask,
} from '@runplane/contracts';
import { isLive, sql, type Tx } from '@runplane/database';
import { admitTurn, createCommand, createRun, getCommand, getDispatchIntent, getRun } from '@runplane/runs';
import { ensureSession } from '@runplane/sessions';
import { findAttempt, insertAttempt, lockAttempts, toAttempt, writeAttempt, type AttemptRow } from './attempt.sql';
import { fullLane, placesIn, writePlaces, type LaneLimit } from './lane.sql';
import { requireTask, requireTaskInLane } from './require';
import { toTask, writeTask, type TaskKey, type TaskRow } from './task.sql';

/**
 * Runs a task as a run: makes the run with the task's payload as its turn, the intent that launches a runner for it, and the link from the attempt, all
 * of it or nothing. From then on the run decides the task (settleAttemptsOnce). A task bound to a session goes through turn admission, which
 * refuses it while the session has an open turn.
 *
 * Input     epoch: of the caller's claim, which ends here: the run has the task now. Absent: the task is pending and gets its attempt here.
 * Returns   task, attempt, run, command and intent; `replayed`: the attempt has its run already, in its present state.
 * Locks     new key (session) → lanes → task → attempts → what createRun and createCommand, or admitTurn, lock.
 *           Writes: queue_tasks, queue_attempts, queue_lanes, runs, commands, dispatch_intents, run_events, outbox.
 * Errors    TaskNotFound, TaskNotRunnable (names what it lacks), TaskClosed, TaskHeld, TaskClaimLost, LaneFull; SessionBusy, SessionBoundary.
 * Emits     what createRun and createCommand, or admitTurn, emit; the run's trace sink names task, queue, lane and attempt.
 * Repeat    safe.
 * Keeps     OWN-1, OWN-3, TURN-1, LOG-2.   Source: new; the original left it to dispatchers, two of which could each start a run.
 */
export async function runQueueTask(tx: Tx, { tenantId, taskId, ...input }: TaskKey & RunQueueTask): Promise<RunningQueueTask> {
  const { epoch, dispatch } = parseInput(RunQueueTask, input);
  const key = { tenantId, taskId };
  const peek = await requireTask(tx, key);
  const wanted = requireRunnable(peek);
  // A session that is new is a key that a twin may make too: before any row lock. Nothing of a task that says what it runs ever changes.
  if (wanted.sessionRef != null) await ensureSession(tx, tenantId, wanted.sessionRef, wanted);

  const { task, limits } = await requireTaskInLane(tx, key);
  const [active] = (await lockAttempts(tx, key)).filter(({ terminalAt }) => terminalAt === null);
  if (active?.runId != null && task.state === 'running' && (epoch === undefined || active.epoch === epoch))
    return replay(tx, key, active.runId, active.attemptId);
  assertMayRun(task, epoch, active);

  const attempt = task.state === 'running' && active !== undefined ? ofClaim(task, active) : await openAttempt(tx, task, limits);
  const made = await makeRun(tx, task, wanted, attempt.attemptId, dispatch);
  const { run, command, intent } = made;
  await writeAttempt(
    tx,
    key,
    attempt.retryIndex,
    sql`run_id = ${run.id}::text, command_id = ${command.id}::text, runner_job_id = ${intent?.runnerJobId ?? null}::text, session_id = ${run.sessionId}::text`,
  );
  await writeTask(
    tx,
    key,
    sql`state = 'running', owner = NULL, expires_at = NULL, places = ${attempt.places}::smallint, attempts = ${attempt.attempts}::int,
      epoch = ${attempt.epoch}::int, attempt_id = ${attempt.attemptId}::text, last_retry_index = greatest(t.last_retry_index, ${attempt.retryIndex}::int)`,
  );
  return { ...(await readTaskAndAttempt(tx, key, attempt.attemptId)), ...made };
}

type WantedRun = CreateRun & { readonly backendProfile: string };

/** What the run is made of. Errors: TaskNotRunnable: it is for workers that claim it. */
function requireRunnable(task: TaskRow): WantedRun {
  const { workspaceRef, providerId, backendProfile, executionPolicy } = task;
  const missing = Object.entries({ workspaceRef, providerId, backendProfile, executionPolicy })
    .filter(([, value]) => value === null)
    .map(([name]) => name);
  if (workspaceRef === null || providerId === null || backendProfile === null || executionPolicy === null)
    throw new TaskNotRunnable(`Queue task ${task.id} has no ${missing.join(', no ')}: it is for workers that claim it.`, {
      taskId: task.id,
      state: task.state,
      missing,
    });
  return {
    projectId: task.projectId,
    workspaceRef,
    providerId,
    backendProfile,
    executionPolicy,
    ...(task.resourceBundleRef === null ? {} : { resourceBundleRef: task.resourceBundleRef }),
    ...(task.sessionRef === null ? {} : { sessionRef: parseInput(SessionRef, task.sessionRef) }),
  };
}

function assertMayRun(task: TaskRow, epoch: number | undefined, active: AttemptRow | undefined): void {
  const { id: taskId, state, holder, leaseRemainingMs } = task;
  if (isEndedTask(state)) throw new TaskClosed(`Queue task ${taskId} has ended (${state}).`, { taskId, state });
  if (epoch !== undefined) {
    const isHeld = state === 'running' && holder !== null && task.epoch === epoch && isLive(leaseRemainingMs);
    if (!isHeld)
      throw new TaskClaimLost(`Queue task ${taskId} is no longer held under epoch ${epoch}.`, {
        taskId,
        epoch,
        currentEpoch: task.epoch,
        state,
      });
    return;
  }
  if (state === 'running' || active !== undefined)
    throw new TaskHeld(`Queue task ${taskId} is being worked on.`, { taskId, holder, leaseRemainingMs });
}

interface RunAttempt {
  readonly attemptId: string;
  readonly retryIndex: number;
  /** Of the task, once its run has it. */
  readonly places: number;
  readonly attempts: number;
  readonly epoch: number;
}

const ofClaim = (task: TaskRow, { attemptId, retryIndex }: AttemptRow): RunAttempt => ({
  attemptId,
  retryIndex,
  places: task.places,
  attempts: task.attempts,
  epoch: task.epoch,
});

async function openAttempt(tx: Tx, task: TaskRow, limits: readonly LaneLimit[]): Promise<RunAttempt> {
  assertRoom(task, limits);
  const attempt = { attemptId: newId('qa'), retryIndex: task.lastRetryIndex + 1 };
  const places = placesIn(limits);
  await writePlaces(tx, { ...task, places }, 1);
  await insertAttempt(tx, {
    tenantId: task.tenantId,
    taskId: task.id,
    ...attempt,
    state: 'running',
    payloadHash: task.payloadHash,
    previousAttemptId: task.attemptId,
    sessionId: task.sessionId,
  });
  return { ...attempt, places, attempts: task.attempts + 1, epoch: task.epoch + 1 }; // a claim of the moment before is fenced
}

/** Errors: LaneFull. */
export function assertRoom({ queue, lane }: Pick<TaskRow, 'queue' | 'lane'>, limits: readonly LaneLimit[]): void {
  const full = fullLane(limits);
  if (full?.maxRunning != null)
    throw new LaneFull(
      `${full.maxRunning} tasks run in ${full.lane === '' ? `queue ${queue}` : `lane ${lane} of queue ${queue}`}: no more at a time.`,
      {
        queue,
        lane,
        maxRunning: full.maxRunning,
      },
    );
}

interface MadeRun {
  readonly run: Run;
  readonly command: Command;
  readonly intent: DispatchIntent | null;
  readonly disposition: RunningQueueTask['disposition'];
}

async function makeRun(tx: Tx, task: TaskRow, wanted: WantedRun, attemptId: string, dispatch: boolean): Promise<MadeRun> {
  const { tenantId, payload } = task;
  const traceSink: JsonObject = { taskId: task.id, queue: task.queue, lane: task.lane, attemptId };
  const asked = dispatch ? {} : { dispatch: null };
  if (wanted.sessionRef != null) {
    const { sessionRef, ...run } = wanted;
    const { sessionId, ...ref } = sessionRef;
    const turn = { run: { ...run, traceSink, sessionRef: ref }, payload, ...asked };
    const admitted = await admitTurn(tx, { tenantId, sessionId, turn, idempotencyKey: attemptId });
    return { run: admitted.run, command: admitted.command, intent: admitted.intent, disposition: admitted.disposition };
  }
  const { run } = await createRun(tx, { tenantId, run: { ...wanted, traceSink } });
  const command = { type: 'turn', payload, dispatch: dispatch ? {} : null };
  return { run, disposition: 'created', ...(await createCommand(tx, { tenantId, runId: run.id, command, idempotencyKey: attemptId })) };
}

async function replay(tx: Tx, key: TaskKey, runId: string, attemptId: string): Promise<RunningQueueTask> {
  const { task, attempt } = await readTaskAndAttempt(tx, key, attemptId);
  const run = await getRun(tx, { tenantId: key.tenantId, runId });
  const { commandId } = attempt;
  if (commandId === null)
    throw new TaskHeld(`Queue task ${key.taskId} is being run.`, { taskId: key.taskId, holder: null, leaseRemainingMs: null });
  const command = await getCommand(tx, { tenantId: key.tenantId, commandId });
  const intent = await getDispatchIntent(tx, { tenantId: key.tenantId, commandId });
  return { task, attempt, run, command, intent, disposition: 'replayed' };
}

/** The task and one of its attempts as this transaction has left them. */
export async function readTaskAndAttempt(tx: Tx, key: TaskKey, attemptId: string): Promise<Pick<RunningQueueTask, 'task' | 'attempt'>> {
  const attempt = await findAttempt(tx, key, attemptId);
  if (attempt === undefined) throw new Error(`attempt ${attemptId} of queue task ${key.taskId} is gone`);
  return { task: toTask(await requireTask(tx, key)), attempt: toAttempt(attempt) };
}
