import type { FailureReason } from '../publisher';

/** What a call meets when its time is over. */
export class TimeIsUp extends Error {
  readonly reason: Extract<FailureReason, 'timed_out' | 'stopped'>;

  constructor(reason: TimeIsUp['reason']) {
    super(reason === 'timed_out' ? 'no answer in time' : 'stopped');
    this.reason = reason;
  }
}

/** The time of one publish call: up to its deadline, or to the abort of one of its signals. `end` it, or its timer and listeners stay. */
export class CallTime {
  readonly #deadline: number;
  readonly #timer: NodeJS.Timeout;
  readonly #signals: readonly AbortSignal[];
  readonly #waiting = new Set<(error: TimeIsUp) => void>();
  #over: TimeIsUp | undefined;

  constructor({ timeoutMs, signals }: { timeoutMs: number; signals: readonly (AbortSignal | undefined)[] }) {
    this.#deadline = performance.now() + timeoutMs;
    this.#timer = setTimeout(() => this.#finish('timed_out'), timeoutMs);
    this.#signals = signals.filter((signal) => signal !== undefined);
    for (const signal of this.#signals) signal.addEventListener('abort', this.#stop);
    if (this.#signals.some(({ aborted }) => aborted)) this.#stop();
  }

  get remainingMs(): number {
    return Math.max(0, this.#deadline - performance.now());
  }

  /** What the work gives, when it gives it in time. Errors: TimeIsUp, at once when it is; the work goes on then, and nobody hears its error. */
  async within<T>(work: () => Promise<T>): Promise<T> {
    if (this.#over !== undefined) throw this.#over;
    let giveUp: (error: TimeIsUp) => void = () => undefined;
    const up = new Promise<never>((_, reject) => {
      giveUp = reject;
      this.#waiting.add(reject);
    });
    try {
      return await Promise.race([work(), up]);
    } finally {
      this.#waiting.delete(giveUp);
    }
  }

  end(): void {
    clearTimeout(this.#timer);
    for (const signal of this.#signals) signal.removeEventListener('abort', this.#stop);
  }

  readonly #stop = (): void => this.#finish('stopped');

  #finish(reason: TimeIsUp['reason']): void {
    this.#over ??= new TimeIsUp(reason);
    for (const giveUp of [...this.#waiting]) giveUp(this.#over);
  }
}
