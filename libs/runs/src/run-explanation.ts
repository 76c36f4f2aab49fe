import { CLAIM_LEASE_MS_DEFAULT, DISPATCH_ATTEMPTS_MAX, isOpenIntent, type RunCause } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { WAITS_FOR_CAPACITY } from './dispatch-intents';
import { decideLostRunner, isCancelOverdue, isClaimOverdue, isDurationOver } from './run-decisions';
import type { ExplainedRun } from './explain-run.sql';

// Why a run is where it is, in one sentence. Pure: the predicates are those by which the operations and sweepers decide.

/** A due intent that nobody takes for longer than this has no dispatcher; one polls every second. */
export const DISPATCHER_PATIENCE_MS = 10_000;
/** A runner that says nothing for longer than this may hang, although its lease is renewed. */
export const SILENCE_MS = 60_000;
/** A live runner learns of a command with its next heartbeat, a third of its lease later. */
export const ACKNOWLEDGE_PATIENCE_MS = CLAIM_LEASE_MS_DEFAULT;

export interface Why {
  readonly cause: RunCause;
  readonly isMoving: boolean;
  readonly sentence: string;
  readonly nextChangeInMs: number | null;
}

/** Says why. A state that no rule knows is a defect and throws: it must not read as "running". */
export function explainFacts(run: ExplainedRun): Why {
  switch (run.status) {
    case 'completed':
    case 'failed':
    case 'blocked':
    case 'cancelled':
      return moving('ended', `The run has ended as ${run.status}${failureOf(run)}; nothing will move it.`);
    case 'pending':
      return explainPending(run);
    case 'claimed':
      return explainClaimed(run);
    case 'cancelling':
      return explainCancelling(run);
    default:
      throw new Error(`no explanation knows the run state ${String(run.status satisfies never)}`);
  }
}

function explainCancelling(run: ExplainedRun): Why {
  const asked = `A cancel (${quoted(run.cancelReason)})${run.cancelRequestedBy === null ? '' : ` by ${run.cancelRequestedBy}`}`;
  if (!isLive(run.leaseInMs)) {
    return stuck('cancel-runner-lost', `${asked} was requested and ${holder(run)} is gone; the next sweep ends the run as cancelled.`, 0);
  }
  if (isCancelOverdue(run)) {
    return stuck(
      'cancel-overdue',
      `${asked} is past its deadline; the next sweep cuts ${holder(run)} off and ends the run as cancelled.`,
      0,
    );
  }
  const until = `at the latest the run ends in ${inWords(run.cancelDeadlineInMs)}`;
  return run.cancelStage === 'delivered' || run.cancelStage === 'aborting'
    ? moving('cancel-under-way', `${asked} has reached ${holder(run)}, which is stopping; ${until}.`, run.cancelDeadlineInMs)
    : moving(
        'cancel-requested',
        `${asked} waits for ${holder(run)} to learn of it with its next heartbeat; ${until}.`,
        run.cancelDeadlineInMs,
      );
}

function explainClaimed(run: ExplainedRun): Why {
  if (isDurationOver(run)) return durationOver(run);
  if (!isLive(run.leaseInMs)) {
    const lost = `${sentenceCase(holder(run))} stopped renewing its lease ${inWords(-(run.leaseInMs ?? 0))} ago;`;
    return decideLostRunner(run, undefined).kind === 'requeue'
      ? stuck(
          'runner-lost-will-requeue',
          `${lost} the next sweep gives the run to another runner (attempt ${run.attempts} of ${run.maxAttempts} is over).`,
          0,
        )
      : stuck('runner-lost-will-fail', `${lost} the next sweep ends the run as failed, runner-lost.`, 0);
  }
  const held = `${sentenceCase(holder(run))} holds the run`;
  if (run.openCommands === 0) {
    return stuck('runner-idle', `${held}, but no command is open: it waits for a command or for its runner to finish it.`, null);
  }
  if (run.cancelledCommandId !== null) {
    const until = `at the latest it ends in ${inWords(run.commandCancelInMs)}`;
    return moving(
      'command-cancel-requested',
      `${held} and has been asked to stop the command ${run.cancelledCommandId}; ${until}.`,
      run.commandCancelInMs,
    );
  }
  if (run.pendingCommandForMs !== null && run.pendingCommandForMs > ACKNOWLEDGE_PATIENCE_MS) {
    const command = `the ${run.pendingCommandType ?? ''} ${run.pendingCommandId ?? ''}`;
    return stuck(
      'command-not-acknowledged',
      `${held} and renews its lease, but has not taken ${command} for ${inWords(run.pendingCommandForMs)}.`,
      null,
    );
  }
  if (run.askedKind !== null) return waitsForPeople(run, held);
  const last = `its last event, ${run.lastEventType ?? 'none'}, is ${inWords(run.lastEventAgoMs)} old`;
  if (run.lastToolCallId !== null) {
    return moving(
      'tool-running',
      `${held} and waits for the tool ${run.lastToolName ?? ''} (call ${run.lastToolCallId}) since ${inWords(run.lastEventAgoMs)}.`,
    );
  }
  return (run.lastEventAgoMs ?? 0) > SILENCE_MS
    ? stuck('working-silently', `${held} and renews its lease, but ${last}: the program may hang.`, run.durationDeadlineInMs)
    : moving('working', `${held}; ${last}.`, run.durationDeadlineInMs);
}

/** Somebody has to answer; the oldest of what the run asks is told. */
function waitsForPeople(run: ExplainedRun, held: string): Why {
  const cause = run.askedKind === 'approval' ? 'waits-for-approval' : 'waits-for-input';
  const what =
    run.askedKind === 'approval'
      ? `somebody to approve a call of ${run.askedWhat ?? ''} (approval ${run.askedId ?? ''})`
      : `an answer to “${run.askedWhat ?? ''}” (request ${run.askedId ?? ''})`;
  const end = isLive(run.askedEndsInMs)
    ? `it expires in ${inWords(run.askedEndsInMs)}`
    : 'its time is over, and the next sweep tells the runner so';
  return stuck(
    cause,
    `${held} and waits for ${what} since ${inWords(run.askedForMs)}, in session ${run.askedSessionId ?? ''}; ${end}.`,
    run.askedEndsInMs,
  );
}

const durationOver = (run: ExplainedRun): Why =>
  stuck(
    'duration-over',
    `The run has used up its time${run.status === 'pending' ? ' and is held by nobody' : ''}; the next sweep cancels it with reason timeout.`,
    0,
  );

function explainPending(run: ExplainedRun): Why {
  if (isDurationOver(run)) return durationOver(run);
  const tried = run.attempts === 0 ? '' : ` after ${run.attempts} of ${run.maxAttempts} attempts`;
  if (isClaimOverdue(run)) {
    return stuck(
      'claim-overdue',
      `No runner has claimed the run by its deadline${tried}${jobOf(run)}; the next sweep ends it as failed, infra-failed.`,
      0,
    );
  }
  if (run.openCommands === 0) {
    return stuck('nothing-to-do', `The run waits${tried}, but no command is open: it needs a command, or a cancel.`, run.claimDeadlineInMs);
  }
  if (run.intentState === null) {
    return stuck(
      'waits-for-runner',
      `Nobody was asked to launch a runner: the run waits${tried} for one that claims it by itself.`,
      run.claimDeadlineInMs,
    );
  }
  if (!isOpenIntent(run.intentState)) {
    return run.intentState === 'dispatched'
      ? moving(
          'waits-for-claim',
          `A runner was launched${jobOf(run)} and has not claimed the run yet${tried}; ${deadline(run)}.`,
          run.claimDeadlineInMs,
        )
      : stuck(
          'dispatch-ended',
          `The dispatch ended as ${run.intentState}${errorOf(run)} and no runner has claimed the run; a new turn can take the session over.`,
          run.claimDeadlineInMs,
        );
  }
  const tries = `attempt ${Math.max(run.intentAttempts ?? 0, 1)} of ${DISPATCH_ATTEMPTS_MAX}`;
  if (run.intentState === 'dispatching' && isLive(run.intentLeaseInMs)) {
    return moving('launching', `The dispatcher ${run.intentOwner ?? ''} is launching a runner (${tries}).`, run.intentLeaseInMs);
  }
  if (isLive(run.intentReadyInMs) && run.intentState === 'retry') {
    const again = `the dispatcher asks again in ${inWords(run.intentReadyInMs)}`;
    return run.intentError === WAITS_FOR_CAPACITY
      ? moving('waits-for-place', `Every place of the backend is taken by other runs; ${again}.`, run.intentReadyInMs)
      : stuck('launch-backs-off', `Launching a runner failed (${tries})${errorOf(run)}; ${again}.`, run.intentReadyInMs);
  }
  if ((run.intentAttempts ?? 0) >= DISPATCH_ATTEMPTS_MAX) {
    return stuck(
      'launches-used-up',
      `All ${DISPATCH_ATTEMPTS_MAX} attempts to launch a runner are used up${errorOf(run)}; the next sweep ends the run as failed.`,
      0,
    );
  }
  if (run.intentState === 'dispatching') {
    return stuck(
      'dispatcher-lost',
      `The dispatcher ${run.intentOwner ?? ''} died while it launched a runner (${tries}); another one takes over.`,
      0,
    );
  }
  const dueForMs = -(run.intentReadyInMs ?? 0);
  return dueForMs > DISPATCHER_PATIENCE_MS
    ? stuck(
        'no-dispatcher',
        `The run waits for ${inWords(dueForMs)} to be dispatched and no dispatcher takes it: is one running, and not at its limit?`,
        null,
      )
    : moving('waits-for-dispatcher', `The run was handed to the dispatcher ${inWords(dueForMs)} ago.`, null);
}

const moving = (cause: RunCause, sentence: string, nextChangeInMs: number | null = null): Why => ({
  cause,
  isMoving: true,
  sentence,
  nextChangeInMs,
});
const stuck = (cause: RunCause, sentence: string, nextChangeInMs: number | null): Why => ({
  cause,
  isMoving: false,
  sentence,
  nextChangeInMs,
});

const quoted = (text: string | null): string => `“${text ?? ''}”`;
const sentenceCase = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const holder = (run: ExplainedRun): string => `the runner ${run.claimedBy ?? 'nobody'} (epoch ${run.claimEpoch})`;
const failureOf = (run: ExplainedRun): string =>
  run.failureKind === null ? '' : ` (${run.failureKind}${run.failureMessage === null ? '' : `: ${run.failureMessage}`})`;
const errorOf = (run: ExplainedRun): string => (run.intentError === null ? '' : `: ${run.intentError}`);
const jobOf = (run: ExplainedRun): string => (run.jobName === null ? '' : ` (${run.jobLauncher ?? 'job'} ${run.jobName})`);
const deadline = (run: ExplainedRun): string =>
  run.claimDeadlineInMs === null ? 'it has no deadline' : `its deadline is in ${inWords(run.claimDeadlineInMs)}`;

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const;

/** A span for people: its greatest whole unit, `0 s` where it is shorter than a second or unknown. */
export function inWords(ms: number | null): string {
  const [unit, size] = UNITS.find(([, unitMs]) => (ms ?? 0) >= unitMs) ?? ['s', 1_000];
  return `${Math.max(Math.floor((ms ?? 0) / size), 0)} ${unit}`;
}
