import { setTimeout as sleep } from 'node:timers/promises';
import { isDomainError } from '@runplane/contracts';
import { backOffMs, isConnectionLoss } from '@runplane/database';

export interface LoopOptions {
  readonly name: string;
  readonly intervalMs: number;
  /** One bounded pass; says how much it changed, and what it could not do. One that may take long ends early when the signal
   * says so, and calls `beat` while it goes on: silence counts as a hanging loop. */
  readonly pass: (signal: AbortSignal, beat: () => void) => Promise<{ changed: number; failed?: number }>;
  /** Starts the next pass at once after one that changed at least this much: there may be more. */
  readonly fullPass?: number | undefined;
  /** Waits between passes; ends early when there is work. Default: the time alone. */
  readonly pause?: ((ms: number, signal: AbortSignal) => Promise<unknown>) | undefined;
  readonly onError: (error: unknown, loop: string) => void;
}

export interface LoopStats {
  readonly passes: number;
  readonly failures: number;
  readonly changed: number;
  /** What passes that went well could not do; a later pass tries again. */
  readonly failed: number;
  /** Time since a pass last ended, well or not, or said that it goes on; large when one hangs. */
  readonly sinceBeatMs: number;
}

export interface Loop {
  readonly name: string;
  readonly intervalMs: number;
  readonly stats: LoopStats;
  /** Counts of what its last pass has found, where somebody may have to look at them. */
  readonly found?: (() => Readonly<Record<string, number>>) | undefined;
  /** No further pass; resolves when the running one has ended. */
  stop(): Promise<void>;
}

const JITTER = 0.2;
const BACK_OFF_MAX_MS = 30_000;

/**
 * Runs `pass` again and again until stopped: never twice at a time, with jitter so that processes spread, slower while it fails, and
 * never dead: an error is reported with the loop's name, and the next pass comes.
 */
export function runEvery(options: LoopOptions): Loop {
  const { name, intervalMs, pass, fullPass = Infinity, onError } = options;
  const pause = options.pause ?? ((ms, signal) => sleep(ms, undefined, { signal, ref: false }));
  const stopped = new AbortController();
  const stats = { passes: 0, failures: 0, changed: 0, failed: 0, beatAt: performance.now() };

  const beat = (): void => {
    stats.beatAt = performance.now();
  };
  const passOnce = async (): Promise<{ waitMs: number; failed: boolean }> => {
    try {
      const { changed, failed = 0 } = await pass(stopped.signal, beat);
      stats.changed += changed;
      stats.failed += failed;
      return { waitMs: changed >= fullPass ? 0 : intervalMs, failed: false };
    } catch (error) {
      stats.failures += 1;
      onError(error, name);
      return { waitMs: intervalMs, failed: true };
    } finally {
      stats.passes += 1;
      beat();
    }
  };

  const run = async (): Promise<void> => {
    for (let failuresInARow = 0; !stopped.signal.aborted;) {
      const { waitMs, failed } = await passOnce();
      failuresInARow = failed ? failuresInARow + 1 : 0;
      const ms = failed
        ? backOffMs(failuresInARow, { baseMs: intervalMs, maxMs: Math.max(intervalMs, BACK_OFF_MAX_MS) })
        : withJitter(waitMs);
      // After a failure nothing may end the pause early: hints that keep coming must not turn an outage into a busy loop.
      if (failed) await sleep(ms, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined);
      else if (ms > 0) await pause(ms, stopped.signal).catch(() => undefined);
      else await sleep(0);
    }
  };
  const running = run();

  return {
    name,
    intervalMs,
    get stats() {
      return {
        passes: stats.passes,
        failures: stats.failures,
        changed: stats.changed,
        failed: stats.failed,
        sinceBeatMs: performance.now() - stats.beatAt,
      };
    },
    async stop() {
      stopped.abort();
      await running;
    },
  };
}

/** True for what goes away by itself: a lost connection, a restart, a lock that stayed; such a failure is a warning, any other an error. */
export function isPassing(error: unknown): boolean {
  return isConnectionLoss(error) || (isDomainError(error) && error.retryable);
}

function withJitter(ms: number): number {
  return Math.round(ms * (1 - JITTER + 2 * JITTER * Math.random()));
}
