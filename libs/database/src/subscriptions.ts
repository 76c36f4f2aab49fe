import type { Stream, Subscription, WaitResult } from './hub';

/** setTimeout turns anything longer into one millisecond. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Who waits for what in this process. Memory only: two thousand waiters hold no connection. */
export class Subscriptions {
  readonly #byStream = new Map<Stream, Set<Waiter>>();
  #count = 0;
  #closed = false;

  get count(): number {
    return this.#count;
  }

  get streams(): readonly Stream[] {
    return [...this.#byStream.keys()];
  }

  subscribe(stream: Stream): Subscription {
    const waiter = new Waiter(() => {
      this.#remove(stream, waiter);
    });
    if (this.#closed) {
      waiter.end();
      return waiter;
    }
    const waiters = this.#byStream.get(stream) ?? new Set();
    this.#byStream.set(stream, waiters.add(waiter));
    this.#count += 1;
    return waiter;
  }

  /** Wakes everybody who waits for the stream; returns how many that are. */
  wake(stream: Stream): number {
    const waiters = this.#byStream.get(stream);
    waiters?.forEach((waiter) => {
      waiter.wake();
    });
    return waiters?.size ?? 0;
  }

  wakeAll(): void {
    for (const stream of this.#byStream.keys()) this.wake(stream);
  }

  /** Answers 'closed' to all, also to those who subscribe later. */
  close(): void {
    this.#closed = true;
    for (const waiters of [...this.#byStream.values()]) for (const waiter of [...waiters]) waiter.close();
  }

  #remove(stream: Stream, waiter: Waiter): void {
    const waiters = this.#byStream.get(stream);
    if (waiters?.delete(waiter) !== true) return;
    this.#count -= 1;
    if (waiters.size === 0) this.#byStream.delete(stream);
  }
}

class Waiter implements Subscription {
  readonly #onClose: () => void;
  /** A change that came while nobody was in `next`. */
  #missed = false;
  #closed = false;
  #answer: ((result: WaitResult) => void) | undefined;

  constructor(onClose: () => void) {
    this.#onClose = onClose;
  }

  next({ timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal | undefined }): Promise<WaitResult> {
    if (this.#answer !== undefined) throw new Error('a subscription answers one call of next at a time');
    if (this.#closed) return Promise.resolve('closed');
    if (signal?.aborted === true) return Promise.resolve('aborted');
    if (this.#missed) {
      this.#missed = false;
      return Promise.resolve('changed');
    }
    return new Promise((resolve) => {
      const onAbort = (): void => this.#answer?.('aborted');
      const timer = setTimeout(() => this.#answer?.('timeout'), clamped(timeoutMs));
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#answer = (result) => {
        this.#answer = undefined;
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
        resolve(result);
      };
    });
  }

  wake(): void {
    if (this.#answer === undefined) this.#missed = true;
    else this.#answer('changed');
  }

  /** Ends it without telling the registry. */
  end(): void {
    this.#closed = true;
    this.#answer?.('closed');
  }

  close(): void {
    if (this.#closed) return;
    this.end();
    this.#onClose();
  }
}

const clamped = (timeoutMs: number): number => (timeoutMs > 0 ? Math.min(timeoutMs, TIMER_MS_MAX) : 0);
