// Why a runner's work has to stop: the reasons of `context.signal` and `context.lost`.

/** Somebody asked to cancel the run or its turn: stop; the end is still reported. */
export class CancelRequested extends Error {
  private readonly deadline: number | undefined;

  constructor(reason: string, deadlineRemainingMs: number | null) {
    super(reason);
    this.name = 'CancelRequested';
    this.deadline = deadlineRemainingMs === null ? undefined : performance.now() + deadlineRemainingMs;
  }

  /** What is left before the server ends the run without this runner; undefined: no limit. */
  remainingMs(): number | undefined {
    return this.deadline === undefined ? undefined : Math.max(0, this.deadline - performance.now());
  }
}

/** The run has used up its time: stop; the end is still reported. The server cuts the run off after its grace, also without this runner. */
export class TimeOver extends Error {
  constructor(message = 'the run has used up its time') {
    super(message);
    this.name = 'TimeOver';
  }
}

/** The runner's own process is asked to end. */
export class RunnerStopping extends Error {
  constructor(message = 'the runner was asked to stop') {
    super(message);
    this.name = 'RunnerStopping';
  }
}

/** The run has ended or may belong to another runner by now: put the tools down at once, nothing is written any more. */
export class RunLost extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RunLost';
  }
}
