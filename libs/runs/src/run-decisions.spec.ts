import {
  BUSY_POLICIES,
  COMMAND_STATES,
  FINAL_RUN_STATES,
  RUN_STATES,
  TERMINAL_STATUSES,
  type IntentState,
  type RunState,
} from '@runplane/contracts';
import {
  decideBusy,
  decideCancel,
  decideFinish,
  decideLostLaunch,
  decideLostRunner,
  decideStaleness,
  decideSteer,
  decideWriter,
  failureKindOf,
  isCancelOverdue,
  isClaimOverdue,
  isDurationOver,
  type LeaseFacts,
  type RunFacts,
} from './run-decisions';

type Facts = RunFacts & { cancelFailureKind: string | null };
const run = (status: RunState, over: Partial<Facts> = {}): Facts => ({
  cancelFailureKind: null,
  status,
  claimEpoch: 3,
  attempts: 1,
  maxAttempts: 3,
  onRunnerLost: 'fail',
  failureKind: status === 'failed' || status === 'blocked' ? 'timeout' : status === 'cancelled' ? 'cancelled' : null,
  claimDeadlineInMs: null,
  cancelDeadlineInMs: null,
  durationDeadlineInMs: null,
  ...over,
});
const live: LeaseFacts = { expiresInMs: 1 };
const ended: LeaseFacts = { expiresInMs: 0 };
const none: LeaseFacts = undefined;

/** One expectation for each state, so that a new state fails here first. */
function everyState<T>(expected: Record<RunState, T>): [RunState, T][] {
  return RUN_STATES.map((state) => [state, expected[state]]);
}

describe('a writer', () => {
  test.each(
    everyState({
      pending: 'lease-lost',
      claimed: 'write',
      cancelling: 'write',
      completed: 'closed',
      failed: 'closed',
      blocked: 'closed',
      cancelled: 'closed',
    }),
  )('of the current epoch on a %s run: %s', (state, kind) => {
    expect(decideWriter(run(state), 3)).toEqual({ kind });
  });

  test.each(RUN_STATES)('of another epoch has lost its lease, also on a %s run', (state) => {
    expect(decideWriter(run(state), 2)).toEqual({ kind: 'lease-lost' });
    expect(decideWriter(run(state), 4)).toEqual({ kind: 'lease-lost' });
  });
});

describe('an outcome', () => {
  test('leaves a failure kind exactly where it is none of completed', () => {
    expect(TERMINAL_STATUSES.map((terminalStatus) => failureKindOf({ terminalStatus }))).toEqual([
      null,
      'backend-failed',
      'backend-failed',
      'cancelled',
    ]);
    expect(TERMINAL_STATUSES.map((terminalStatus) => failureKindOf({ terminalStatus, failureKind: 'timeout' }))).toEqual([
      null,
      'timeout',
      'timeout',
      'timeout',
    ]);
  });
});

describe('a finish', () => {
  test.each(
    everyState({
      pending: 'lease-lost',
      claimed: 'close',
      cancelling: 'close',
      completed: 'replay',
      failed: 'closed',
      blocked: 'closed',
      cancelled: 'closed',
    }),
  )('as completed of a %s run: %s', (state, kind) => {
    expect(decideFinish(run(state), 3, { terminalStatus: 'completed' })).toEqual({ kind });
  });

  test.each(RUN_STATES)('under another epoch is refused, also on a %s run', (state) => {
    expect(decideFinish(run(state), 2, { terminalStatus: 'completed' })).toEqual({ kind: 'lease-lost' });
  });

  test.each(FINAL_RUN_STATES)('is a repeat only with the stored outcome: %s', (state) => {
    const stored = run(state);
    for (const terminalStatus of TERMINAL_STATUSES) {
      const same = decideFinish(stored, 3, { terminalStatus, failureKind: stored.failureKind });
      expect(same).toEqual({ kind: terminalStatus === state ? 'replay' : 'closed' });
    }
    const timedOut = { ...stored, failureKind: 'timeout', cancelFailureKind: 'timeout' };
    if (state === 'cancelled') expect(decideFinish(timedOut, 3, { terminalStatus: state })).toEqual({ kind: 'replay' });
    if (state !== 'completed')
      expect(decideFinish(stored, 3, { terminalStatus: state as 'failed', failureKind: 'another' })).toEqual({ kind: 'closed' });
  });
});

describe('a cancel', () => {
  const keep = { kind: 'keep' };
  const close = (fenced: boolean) => ({ kind: 'close', fenced });
  const finals = { completed: keep, failed: keep, blocked: keep, cancelled: keep };

  test.each(everyState({ pending: close(false), claimed: { kind: 'request' }, cancelling: keep, ...finals }))(
    'of a %s run whose holder lives: %j',
    (state, decision) => {
      expect(decideCancel(run(state), live, { immediate: false })).toEqual(decision);
    },
  );

  test.each(everyState({ pending: close(false), claimed: close(true), cancelling: close(true), ...finals }))(
    'of a %s run whose holder is gone: %j',
    (state, decision) => {
      for (const lease of [ended, none]) expect(decideCancel(run(state), lease, { immediate: false })).toEqual(decision);
    },
  );

  test.each(everyState({ pending: close(false), claimed: close(true), cancelling: close(true), ...finals }))(
    'at once of a %s run: %j',
    (state, decision) => {
      for (const lease of [live, ended, none]) expect(decideCancel(run(state), lease, { immediate: true })).toEqual(decision);
    },
  );
});

describe('the sweep of lost runners', () => {
  const keep = { kind: 'keep' };
  const untouched = { pending: keep, completed: keep, failed: keep, blocked: keep, cancelled: keep };

  test.each(RUN_STATES)('leaves a %s run alone whose lease lives', (state) => {
    expect(decideLostRunner(run(state), live)).toEqual(keep);
  });

  test.each(everyState({ ...untouched, claimed: { kind: 'fail' }, cancelling: { kind: 'finish-cancel' } }))(
    'of a %s run that must not be repeated: %j',
    (state, decision) => {
      for (const lease of [ended, none]) expect(decideLostRunner(run(state), lease)).toEqual(decision);
    },
  );

  test.each([
    [1, 3, 'requeue'],
    [2, 3, 'requeue'],
    [3, 3, 'fail'],
    [4, 3, 'fail'],
    [1, 1, 'fail'],
  ])('repeats a run within its attempts: %i of %i: %s', (attempts, maxAttempts, kind) => {
    expect(decideLostRunner(run('claimed', { onRunnerLost: 'requeue', attempts, maxAttempts }), ended)).toEqual({ kind });
  });

  test('ends a run whose time is over as that, not as lost, and does not repeat it', () => {
    const over = { onRunnerLost: 'requeue', durationDeadlineInMs: 0 } as const;
    expect(decideLostRunner(run('claimed', over), ended)).toEqual({ kind: 'timeout' });
    expect(decideLostRunner(run('claimed', { ...over, durationDeadlineInMs: 1 }), ended)).toEqual({ kind: 'requeue' });
    expect(decideLostRunner(run('cancelling', over), ended)).toEqual({ kind: 'finish-cancel' });
  });

  test('completes a requested cancel before it repeats a run', () => {
    expect(decideLostRunner(run('cancelling', { onRunnerLost: 'requeue' }), ended)).toEqual({ kind: 'finish-cancel' });
  });
});

describe('a launched job that is gone', () => {
  const launch = (jobId: string | null, state: IntentState = 'dispatched', isLost = false) => ({
    intentId: `intent of ${jobId}`,
    commandId: 'c',
    state,
    jobId,
    isLost,
  });
  const mine = launch('mine', 'dispatched', true);
  const dispatched = (over: Partial<RunFacts> = {}) => run('pending', { attempts: 0, ...over });

  test.each(
    everyState({
      pending: 'fail',
      claimed: 'keep',
      cancelling: 'keep',
      completed: 'keep',
      failed: 'keep',
      blocked: 'keep',
      cancelled: 'keep',
    }),
  )('concerns nobody but a run that waits for it: %s: %s', (state, kind) => {
    expect(decideLostLaunch(run(state), [mine], 'mine')).toMatchObject({ kind });
  });

  test.each([
    ['of a command that has ended, or of an older launch', [launch('newer')]],
    ['whose launch is not recorded yet', [launch('mine', 'dispatching')]],
    ['beside a launch that is to come', [mine, launch('other', 'retry')]],
    ['beside a job that may still claim', [mine, launch('other')]],
  ])('%s changes nothing', (_, launches) => {
    expect(decideLostLaunch(dispatched(), launches, 'mine')).toEqual({ kind: 'keep' });
  });

  test('ends the wait when every other launch has failed, was lost too, or needed no job', () => {
    const others = [launch('failed', 'failed'), launch('lost', 'dispatched', true), launch(null)];
    expect(decideLostLaunch(dispatched(), [mine, ...others], 'mine')).toEqual({ kind: 'fail', launch: mine });
  });

  test.each([
    [0, 3, 'requeue'],
    [1, 3, 'requeue'],
    [2, 3, 'fail'],
    [0, 1, 'fail'],
  ])('counts as an attempt: after %i of %i: %s', (attempts, maxAttempts, kind) => {
    expect(decideLostLaunch(dispatched({ onRunnerLost: 'requeue', attempts, maxAttempts }), [mine], 'mine')).toMatchObject({ kind });
  });
});

describe('a deadline', () => {
  test.each(RUN_STATES)('of a cancel is overdue only on a cancelling run: %s', (state) => {
    expect([1, 0, -1, null].map((cancelDeadlineInMs) => isCancelOverdue(run(state, { cancelDeadlineInMs })))).toEqual(
      state === 'cancelling' ? [false, true, true, false] : [false, false, false, false],
    );
  });

  test.each(RUN_STATES)('of a duration is over for a run that is open and that nobody has asked to stop: %s', (state) => {
    expect([1, 0, -1, null].map((durationDeadlineInMs) => isDurationOver(run(state, { durationDeadlineInMs })))).toEqual(
      state === 'claimed' || state === 'pending' ? [false, true, true, false] : [false, false, false, false],
    );
  });

  test.each(RUN_STATES)('of a claim is overdue only on a pending run: %s', (state) => {
    expect([1, 0, -1, null].map((claimDeadlineInMs) => isClaimOverdue(run(state, { claimDeadlineInMs })))).toEqual(
      state === 'pending' ? [false, true, true, false] : [false, false, false, false],
    );
  });
});

describe('the open turn of a session', () => {
  test.each(['claimed', 'cancelling'] as const)('of a %s run may be taken over once its lease has ended', (state) => {
    expect(decideStaleness(run(state), { expiresInMs: 250 }, 'dispatched', null)).toEqual({ kind: 'live', staleInMs: 250 });
    for (const lease of [ended, none])
      expect(decideStaleness(run(state), lease, 'dispatched', null)).toEqual({ kind: 'stale', why: 'lease-ended' });
  });

  test('of a run that nobody has claimed may be taken over at its claim deadline', () => {
    expect(decideStaleness(run('pending', { claimDeadlineInMs: 90 }), none, 'pending', 0)).toEqual({ kind: 'live', staleInMs: 90 });
    expect(decideStaleness(run('pending', { claimDeadlineInMs: 0 }), none, 'pending', 0)).toEqual({ kind: 'stale', why: 'never-claimed' });
  });

  test.each([
    ['pending', 'live'],
    ['dispatching', 'live'],
    ['retry', 'live'],
    ['dispatched', 'live'],
    ['failed', 'stale'],
    ['cancelled', 'stale'],
  ])('of a run whose dispatch is %s is %s', (intentState, kind) => {
    expect(decideStaleness(run('pending'), none, intentState, 0)).toMatchObject({ kind });
  });

  test('of a run that was never dispatched waits for a runner of its own, but keeps the next turn out for a time only', () => {
    expect(decideStaleness(run('pending'), none, undefined, 1)).toEqual({ kind: 'live', staleInMs: 1 });
    expect(decideStaleness(run('pending'), none, undefined, 0)).toEqual({ kind: 'stale', why: 'never-claimed' });
    expect(decideStaleness(run('pending', { claimDeadlineInMs: 90 }), none, undefined, 0)).toEqual({ kind: 'live', staleInMs: 90 });
  });
});

describe('a turn that finds its session with an open one', () => {
  test.each([
    ['of a claimed run', run('claimed'), live, { kind: 'busy', staleInMs: 1 }, 'interrupt'],
    ['of a run that waits for its runner', run('pending', { claimDeadlineInMs: 90 }), none, { kind: 'busy', staleInMs: 90 }, 'interrupt'],
    ['of a run that is being cancelled', run('cancelling', { cancelDeadlineInMs: 5 }), live, { kind: 'busy', staleInMs: 1 }, 'interrupt'],
    ['of a run whose cancel is overdue', run('cancelling', { cancelDeadlineInMs: 0 }), live, { kind: 'busy', staleInMs: 1 }, 'end-cancel'],
  ] as const)('%s does what its policy says', (_, facts, lease, busy, interrupt) => {
    expect(decideBusy('reject', facts, lease, 'dispatched', null)).toEqual(busy);
    expect(decideBusy('interrupt', facts, lease, 'dispatched', null)).toEqual({ kind: interrupt });
    expect(decideBusy('steer', facts, lease, 'dispatched', null)).toEqual({ kind: 'steer' });
    expect(decideBusy('enqueue', facts, lease, 'dispatched', null)).toEqual({ ...busy, kind: 'enqueue' });
  });

  test.each(BUSY_POLICIES)('takes a stale one over, also under the policy %s', (policy) => {
    for (const state of ['claimed', 'cancelling'] as const)
      expect(decideBusy(policy, run(state), ended, 'dispatched', null)).toEqual({ kind: 'take-over', why: 'lease-ended' });
    expect(decideBusy(policy, run('pending', { claimDeadlineInMs: 0 }), none, 'dispatched', null)).toEqual({
      kind: 'take-over',
      why: 'never-claimed',
    });
    expect(decideBusy(policy, run('pending'), none, 'failed', null)).toEqual({ kind: 'take-over', why: 'dispatch-ended' });
  });
});

describe('a steer', () => {
  const turn = { state: 'acknowledged', cancelRequestId: null } as const;
  const refuse = (why: string): object => ({ kind: 'refuse', why });
  const receive: object = { kind: 'receive' };
  const finals = {
    completed: refuse('turn-ended'),
    failed: refuse('turn-ended'),
    blocked: refuse('turn-ended'),
    cancelled: refuse('turn-ended'),
  };

  test.each(everyState({ pending: receive, claimed: receive, cancelling: refuse('cancelling'), ...finals }))(
    'for the turn of a %s run that is well: %j',
    (state, decision) => {
      expect(decideSteer(run(state), live, turn, 'dispatched')).toEqual(decision);
    },
  );

  test.each(
    everyState({
      pending: refuse('no-runner-coming'),
      claimed: refuse('runner-lost'),
      cancelling: refuse('cancelling'),
      ...finals,
    }),
  )('for the turn of a %s run whose runner is gone and whose dispatch has ended: %j', (state, decision) => {
    for (const lease of [ended, none])
      for (const intent of ['failed', 'cancelled', undefined]) expect(decideSteer(run(state), lease, turn, intent)).toEqual(decision);
  });

  test.each([
    ['pending', 1, true],
    ['dispatching', null, true],
    ['retry', null, true],
    ['dispatched', null, true],
    ['dispatched', 0, false],
    ['pending', 0, false],
  ] as const)('waits for a runner whose dispatch is %s, with %s ms to its claim deadline: %s', (intent, claimDeadlineInMs, received) => {
    const decision = decideSteer(run('pending', { claimDeadlineInMs }), none, turn, intent);
    expect(decision).toEqual(received ? receive : refuse('no-runner-coming'));
  });

  test.each(COMMAND_STATES)('for a turn that is %s', (state) => {
    const open = state === 'pending' || state === 'acknowledged';
    expect(decideSteer(run('claimed'), live, { ...turn, state }, undefined)).toEqual(open ? receive : refuse('turn-ended'));
    expect(decideSteer(run('claimed'), live, { state, cancelRequestId: 'cancel_1' }, undefined)).toEqual(
      refuse(open ? 'cancelling' : 'turn-ended'),
    );
  });
});
