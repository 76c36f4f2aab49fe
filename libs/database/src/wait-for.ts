import type { Db } from './db';
import type { Stream } from './hub';

/** How long a reader waits for news, and what ends its wait before. */
export interface Wait {
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Looks until it is done or the time is over, after each change of the stream. The subscription stands before the first look, so that no
 * wake-up is lost; no connection is held while it waits.
 */
export async function waitFor<T>(
  db: Db,
  stream: Stream,
  { waitMs, signal }: Wait,
  look: () => Promise<{ value: T; done: boolean }>,
): Promise<T> {
  const deadline = performance.now() + waitMs;
  const subscription = db.hub.subscribe(stream);
  try {
    for (;;) {
      const { value, done } = await look();
      const timeoutMs = deadline - performance.now();
      if (done || timeoutMs <= 0 || (await subscription.next({ timeoutMs, signal })) !== 'changed') return value;
    }
  } finally {
    subscription.close();
  }
}
