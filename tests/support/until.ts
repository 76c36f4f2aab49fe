import { setTimeout as sleep } from 'node:timers/promises';

/** Polls until the answer is there; fails with what was waited for. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 60_000,
  pollMs = 25,
): Promise<T> {
  for (const late = Date.now() + timeoutMs; ; await sleep(pollMs)) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (Date.now() > late) throw new Error(`within ${timeoutMs} ms it did not come to be that ${what}`);
  }
}
