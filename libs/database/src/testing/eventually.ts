import { setTimeout as delay } from 'node:timers/promises';

/** Far above what anything takes that comes at all, also on a machine that stands still for some seconds; below the time of a test. */
const PATIENCE_MS = 60_000;

/** Asks until it is so; fails with the question. For what comes by itself, and is not told of. */
export async function eventually(isSo: () => boolean | Promise<boolean>, pollMs = 10): Promise<void> {
  for (const late = Date.now() + PATIENCE_MS; !(await isSo()); await delay(pollMs))
    if (Date.now() > late) throw new Error(`did not come true: ${isSo.toString()}`);
}
