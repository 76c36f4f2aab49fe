import { setTimeout as sleep } from 'node:timers/promises';
import { isPassing, ProblemError, UnexpectedAnswer } from './errors';

export interface RetryPolicy {
  /** Tries in all; Infinity goes on until the signal. */
  attemptsMax: number;
  /** No new try begins later than this after the first. */
  elapsedMsMax: number;
  /** The pause doubles from here … */
  pauseMsMin: number;
  /** … up to here. */
  pauseMsMax: number;
}

export const RETRY_DEFAULT: RetryPolicy = { attemptsMax: 5, elapsedMsMax: 30_000, pauseMsMin: 100, pauseMsMax: 5_000 };

/** For readers that nothing but a refusal or their signal ends. */
export const PATIENT = { attemptsMax: Infinity, elapsedMsMax: Infinity };

/** Half of the pause is fixed, half random, so that clients which failed together do not come back together. */
export function pauseMs(failures: number, policy: RetryPolicy, random: () => number = Math.random): number {
  const pause = Math.min(policy.pauseMsMax, policy.pauseMsMin * 2 ** Math.min(failures - 1, 30));
  return pause * (0.5 + random() / 2);
}

/** The server's wish (Retry-After) is a lower bound of the pause. */
export function pauseAfter(error: unknown, failures: number, policy: RetryPolicy): number {
  const wished = error instanceof ProblemError || error instanceof UnexpectedAnswer ? (error.retryAfterMs ?? 0) : 0;
  return wished + pauseMs(failures, policy);
}

/** Runs an attempt again while its failure is a passing one and the policy allows; rejects with the signal's reason once that aborts. */
export async function withRetry<T>(attempt: () => Promise<T>, policy: RetryPolicy, signal?: AbortSignal): Promise<T> {
  const startedAt = performance.now();
  for (let failures = 1; ; failures += 1) {
    signal?.throwIfAborted();
    try {
      return await attempt();
    } catch (error) {
      signal?.throwIfAborted();
      const pause = pauseAfter(error, failures, policy);
      const isOver = failures >= policy.attemptsMax || performance.now() - startedAt + pause > policy.elapsedMsMax;
      if (isOver || !isPassing(error)) throw error;
      await pauseFor(pause, signal);
    }
  }
}

export async function pauseFor(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}
