import { type Client, isPassing, ProblemError } from '@runplane/client';
import { WAIT_SECONDS_MAX } from '@runplane/contracts';
import { setTimeout as sleep } from 'node:timers/promises';

export interface CommandWatchOptions {
  readonly client: Client;
  readonly runId: string;
  readonly signal: AbortSignal;
  /** The greatest number that the runner knows. */
  readonly afterSeq: () => number;
  /** Something has come for this runner: a heartbeat brings it. False when no more commands will come. */
  readonly onNews: () => Promise<boolean>;
}

const PAUSE_MS_MIN = 500;
const PAUSE_MS_MAX = 10_000;
/** An answer without a command that comes sooner was no wait: the API shuts down, or the run takes no more. */
const WAIT_MS_MIN = 1_000;

/**
 * Waits for new commands beside the heartbeats, so that a steer, or a cancel of the run, reaches the runner in milliseconds and not with the
 * next beat. Only that something is new is learned here; what it is comes by a heartbeat, the one way in. It may fail, be refused or not
 * exist: heartbeats then bring the same later.
 */
export async function watchCommands({ client, runId, signal, afterSeq, onNews }: CommandWatchOptions): Promise<void> {
  let seen = 0;
  for (let failures = 0; !signal.aborted;) {
    const askedAt = performance.now();
    try {
      seen = Math.max(seen, afterSeq());
      const page = { after: seen, limit: 1, waitSeconds: WAIT_SECONDS_MAX };
      const { commands } = await client.listCommands(runId, { ...page, signal, retry: { attemptsMax: 1 } });
      seen = commands[0]?.seq ?? seen; // also one that has ended by now, which no heartbeat brings
      if (!(await onNews())) return;
      failures = commands.length > 0 || performance.now() - askedAt > WAIT_MS_MIN ? 0 : failures + 1;
    } catch (error) {
      if (signal.aborted || (error instanceof ProblemError && !isPassing(error))) return;
      failures += 1;
    }
    if (failures > 0) await sleep(Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** (failures - 1)), undefined, { signal }).catch(() => undefined);
  }
}
