import type { Command } from '@runplane/contracts';
import { waitFor, type Db, type Wait } from '@runplane/database';
import { listCommands } from './read-runs';
import { requireRun } from './require';
import { commandStream, type RunKey } from './run.sql';

/**
 * A run's commands behind a number, waiting for the first one up to `waitMs`: for its runner, between heartbeats. Answers at once, perhaps
 * with none, when the run takes no more: it is being cancelled, or has ended. Holds no connection while it waits; appends do not wake it.
 * Errors: RunNotFound.
 */
export function waitForCommands(
  db: Db,
  { tenantId, runId, afterSeq, limit, ...wait }: RunKey & Wait & { afterSeq: number; limit?: number | undefined },
): Promise<{ commands: Command[] }> {
  const key = { tenantId, runId };
  return waitFor(db, commandStream(key), wait, async () => {
    const { status } = await requireRun(db.sql, key); // before the page: an end that comes in between is seen by the next look
    const value = await listCommands(db, { ...key, afterSeq, limit });
    return { value, done: value.commands.length > 0 || (status !== 'pending' && status !== 'claimed') };
  });
}
